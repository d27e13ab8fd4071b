// SPDX-License-Identifier: Apache-2.0

// Stolen processors: how much processor time this process got, of what its threads wanted, from how long they waited to run.

package monitor

import (
	"bytes"
	"time"
)

const (
	// A thread that becomes ready on an idle processor waits for as long until that has woken up, and nobody else is to blame.
	wakeUp = 100 * time.Microsecond

	leastWanted  = 0.01 // processors below which the share is missing: the kernel's numbers are too coarse for less
	leastCovered = 0.1  // share of the processor time that the measured threads must have used
)

// waits are the counters of schedstat: of one thread since it began, or summed over threads and a time.
type waits struct {
	ran, waited time.Duration // on a processor, and ready for one
	turns       uint64        // on a processor
}

// parseWaits reads "ran waited turns", in nanoseconds. A kernel that does not count says "0 0 0".
func parseWaits(text []byte) (w waits, ok bool) {
	const most = 1 << 62
	ran, text, _ := bytes.Cut(text, []byte(" "))
	waited, turns, _ := bytes.Cut(text, []byte(" "))
	r, known := number(ran)
	d, alsoKnown := number(waited)
	n, ok := number(turns)
	if !known || !alsoKnown || !ok || r > most || d > most {
		return waits{}, false
	}
	return waits{time.Duration(r), time.Duration(d), n}, true
}

// since returns what has come since before, of one thread, in elapsed; nothing if a counter has fallen: it is another thread, or
// nonsense. No thread runs or waits for longer than time passes.
func (w waits) since(before waits, elapsed time.Duration) waits {
	if w.ran < before.ran || w.waited < before.waited || w.turns < before.turns {
		return waits{}
	}
	return waits{min(w.ran-before.ran, elapsed), min(w.waited-before.waited, elapsed), w.turns - before.turns}
}

// demand is what a process did with processors in a time.
type demand struct {
	elapsed   time.Duration
	used      time.Duration // processor time of all threads
	waits     waits         // of those that were measured
	procs     float64       // GOMAXPROCS
	available float64       // processors that it may use: by its affinity, and the quota
	throttled float64       // processors that the quota withheld
}

// share returns the processor time that the process got, of what it wanted. Waiting is nobody else's doing if more threads want
// to run than processors are available, if the quota withheld them, or if a processor had to wake up.
func (d demand) share() Reading {
	if d.elapsed <= 0 || !(d.available > 0) {
		return Reading{}
	}
	used, ran := d.used.Seconds()/d.elapsed.Seconds(), d.waits.ran.Seconds()/d.elapsed.Seconds()
	if ran <= 0 || ran < leastCovered*used {
		return Reading{}
	}
	used = max(used, ran)
	waited := max(0, d.waits.waited.Seconds()-float64(d.waits.turns)*wakeUp.Seconds()) / d.elapsed.Seconds()
	waited *= used / ran // the others waited alike
	own := max(used*max(0, d.procs-d.available)/d.available, d.throttled)
	wanted := min(used+max(0, waited-own), max(used, d.available))
	if wanted < leastWanted {
		return Reading{}
	}
	return Reading{used / wanted, true}
}

// SPDX-License-Identifier: Apache-2.0

// Which running executions are long: streams, jobs, calls of a dependency that hangs. They say nothing about those that end soon.

package monitor

import (
	"maps"
	"slices"
	"time"
)

const (
	mostKinds = 64
	recall    = 64          // execution times that a kind keeps
	longAfter = time.Second // an execution is long at this age, at least,
	longTimes = 8           // and at this many times the 90th percentile of the last ones of its kind
	enough    = recall      // executions of a kind that must have ended before the shortest of them is what it needs

	// If the newer half of those times is that much longer, the work has become slower, and no more executions become long.
	rising = 1.5
)

// A run is one running execution.
type run struct {
	older, younger *run // of its kind; younger links the free list as well
	kind           *kind
	name           string
	start          time.Duration // since the epoch
	parked         bool          // it only waits: Span.Park
	held           bool          // or is not believed yet that it does
	began          time.Duration // to wait, since the epoch
	awaits         int           // how often it waits for its client at the moment
	number         uint64        // grows when it ends
}

// A kind is the executions with one name.
type kind struct {
	oldest, youngest *run // of those that are not parked: there may be very many that are, and none is long
	parked           int
	recent           recent
	long             int           // at the last take
	need             time.Duration // as of the last take; 0: unknown
	ended            int           // how many had ended then
	working          int           // how many more have to be found only to wait before the next is believed at once
	awaiting         int           // of those that run, how many wait for their client
}

func (k *kind) push(w *run) {
	w.kind, w.older, w.younger = k, k.youngest, nil
	if k.youngest == nil {
		k.oldest = w
	} else {
		k.youngest.younger = w
	}
	k.youngest = w
}

// remove is for a run that ends.
func (k *kind) remove(w *run) {
	if w.parked {
		k.parked--
	} else {
		k.unlink(w)
	}
	k.awaiting -= min(w.awaits, 1)
	w.name, w.parked, w.held, w.awaits = "", false, false, 0
}

func (k *kind) unlink(w *run) {
	if w.older == nil {
		k.oldest = w.younger
	} else {
		w.older.younger = w.younger
	}
	if w.younger == nil {
		k.youngest = w.older
	} else {
		w.younger.older = w.older
	}
	w.older, w.younger = nil, nil
}

// kindOfLocked returns the kind of a name.
func (r *Recorder) kindOfLocked(name string) *kind {
	if k := r.kinds[name]; k != nil {
		return k
	}
	if len(r.kinds) == mostKinds {
		return &r.others
	}
	k := new(kind)
	r.kinds[name] = k
	return k
}

// forgetLocked makes room for new names when there is none: of the kinds of which none runs it drops each that has not ended for
// as many minutes as it had ended executions, a day at most. Names that are asked for once so give way to each other, and work
// that has been asked for often keeps what is known of it.
func (r *Recorder) forgetLocked(now time.Duration) {
	if len(r.kinds) < mostKinds {
		return
	}
	maps.DeleteFunc(r.kinds, func(_ string, k *kind) bool {
		return k.oldest == nil && k.parked == 0 && int((now-k.recent.at)/time.Minute) >= min(k.recent.n, 24*60)
	})
}

// recent are the last execution times, in the order of their ends.
type recent struct {
	times [recall]time.Duration // a ring
	n     int                   // that ever ended
	at    time.Duration         // of the last end
}

func (l *recent) add(took, now time.Duration) {
	l.times[l.n%recall] = took
	l.n++
	l.at = now
}

// bar returns the age at which an execution is long, and whether the times rise.
func (l *recent) bar() (age time.Duration, rises bool) {
	n := min(l.n, recall)
	var both [recall]time.Duration
	for i := range n { // oldest first
		both[i] = l.times[(l.n-n+i)%recall]
	}
	before, now := p90(both[:n/2]), p90(both[n/2:n])
	return max(longAfter, longTimes*p90(both[:n])), float64(now) > rising*float64(before)
}

// p90 sorts times and returns their 90th percentile; 0 if there are none.
func p90(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[len(times)*9/10]
}

// longLocked counts the executions that are long now, and finds the oldest.
func (r *Recorder) longLocked(now time.Duration, out *Service) {
	count := func(k *kind) {
		before, oldest := k.long, k.oldest
		k.long = 0
		if oldest == nil || k.awaiting == 0 && now-oldest.start < longAfter {
			return
		}
		bar, rises := k.recent.bar()
		for w := oldest; w != nil && now-w.start >= bar; w = w.younger {
			if w.awaits == 0 {
				k.long++
			}
		}
		if rises && now-k.recent.at < bar { // what has become slower has not ended yet
			k.long = min(k.long, before)
		}
		if all := k.long + k.awaiting; all > 0 {
			out.Long += all
			if age := now - oldest.start; age > out.LongFor || out.LongName == "" {
				out.LongName, out.LongFor = oldest.name, age
			}
		}
	}
	for _, k := range r.kinds {
		count(k)
	}
	count(&r.others)
}

// needsLocked returns what each kind takes at least: the map of the last call, unless that has changed. Where few have ended, the
// shortest of them says little about the next.
func (r *Recorder) needsLocked() map[string]time.Duration {
	known, same := 0, true
	for name, k := range r.kinds {
		if n := k.recent.n; n >= enough && n != k.ended {
			k.ended, k.need = n, begin(rangeOf(slices.Min(k.recent.times[:min(n, recall)])))
		}
		if k.need > 0 {
			known++
			same = same && r.needs[name] == k.need
		}
	}
	if same && known == len(r.needs) {
		return r.needs
	}
	r.needs = make(map[string]time.Duration, known)
	for name, k := range r.kinds {
		if k.need > 0 {
			r.needs[name] = k.need
		}
	}
	return r.needs
}

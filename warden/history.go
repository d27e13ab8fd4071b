// SPDX-License-Identifier: Apache-2.0

// The last readings, which show how the current state came about.

package warden

import (
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Reading is one turn of the pipeline: the sample, the decision, and the limiter's counters.
type Reading struct {
	Sample   monitor.Sample
	Decision decision.ControlDecision
	// Limiter holds the counters right after the decision was applied.
	Limiter limiter.Stats
	// Pressure is the overload signal of [control.Controller.Pressure], 0 to 1, and Levels are the signals behind it, 0 to 1, by
	// name. They are for display only. If a custom controller has no such method, Pressure is not OK, and Levels is nil.
	Pressure monitor.Reading
	Levels   map[string]float64
}

// gauge is the optional part of a controller, for display only.
type gauge interface {
	Pressure(s monitor.Sample) (pressure float64, levels map[string]float64)
}

// ring is a ring buffer of readings. It grows up to keep.
type ring struct {
	keep, next int // next is the index of the oldest reading of a full ring
	readings   []Reading
}

func (r *ring) add(reading Reading) {
	if len(r.readings) < r.keep {
		r.readings = append(r.readings, reading)
		return
	}
	r.readings[r.next] = reading
	r.next = (r.next + 1) % r.keep
}

// recordLocked completes a reading and keeps it, even if Pressure panics, because its decision is in force already.
func (w *Warden) recordLocked(r Reading) {
	defer func() {
		w.readMu.Lock()
		defer w.readMu.Unlock()
		w.last = r
		w.history.add(r)
	}()
	if g, ok := w.controller.(gauge); ok {
		p, levels := g.Pressure(r.Sample)
		r.Pressure, r.Levels = monitor.Reading{Value: p, OK: true}, levels
	}
}

// Latest returns the last reading; the zero Reading before the first. It does not wait for a sample in progress. Its slices,
// maps and pointers are shared: do not modify what they lead to.
func (w *Warden) Latest() Reading {
	if w == nil {
		return Reading{}
	}
	w.readMu.Lock()
	defer w.readMu.Unlock()
	return w.last
}

// History appends to buf the kept readings whose decision number is greater than since, oldest first; 0: all. The warden keeps
// the last Config.History readings. History does not wait for a sample in progress, and allocates only to grow buf. Slices,
// maps and pointers are shared, as in [Warden.Latest].
func (w *Warden) History(buf []Reading, since uint64) []Reading {
	if w == nil {
		return buf
	}
	w.readMu.Lock()
	defer w.readMu.Unlock()
	h := w.history
	for i := range h.readings {
		if r := &h.readings[(h.next+i)%len(h.readings)]; r.Decision.Seq > since {
			buf = append(buf, *r)
		}
	}
	return buf
}

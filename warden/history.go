// The last readings: how things came to be as they are.

package warden

import (
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Reading is one turn of the pipeline: what was measured, what was decided, and what the limiter had done until then.
type Reading struct {
	Sample   monitor.Sample
	Decision decision.ControlDecision
	// Limiter are the counters right after the decision was applied.
	Limiter limiter.Stats
	// Pressure is 0 to 1, as [control.Controller] judges it; not OK if the controller is another one that has no Pressure.
	Pressure monitor.Reading
}

// gauge is what a controller may have besides Step, for people to look at.
type gauge interface {
	Pressure() float64
	Levels(monitor.Sample) []control.Level
}

// ring keeps the last readings. It grows to keep of them and no further.
type ring struct {
	keep, next int // next is the oldest of a full ring
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

// remember completes a reading and keeps it, also if Pressure panics: its decision rules. The caller holds mu.
func (w *Warden) remember(r Reading) {
	defer func() {
		w.kept.Lock()
		defer w.kept.Unlock()
		w.last = r
		w.history.add(r)
	}()
	if g, ok := w.controller.(gauge); ok {
		r.Pressure = monitor.Reading{Value: g.Pressure(), OK: true}
	}
}

// Latest is the last reading; the zero Reading before the first. It does not wait for a sample that is being taken. Reasons
// and Stale are shared: read them, do not write to them.
func (w *Warden) Latest() Reading {
	if w == nil {
		return Reading{}
	}
	w.kept.Lock()
	defer w.kept.Unlock()
	return w.last
}

// History appends to buf the readings kept that are younger than the decision with number since, the oldest first; 0: all
// of them. They are those of the last Config.History turns, whether anybody looked or not. It does not wait for a sample
// that is being taken, and allocates what buf has no room for. Reasons and Stale are shared, as in [Warden.Latest].
func (w *Warden) History(buf []Reading, since uint64) []Reading {
	if w == nil {
		return buf
	}
	w.kept.Lock()
	defer w.kept.Unlock()
	h := w.history
	for i := range h.readings {
		if r := &h.readings[(h.next+i)%len(h.readings)]; r.Decision.Seq > since {
			buf = append(buf, *r)
		}
	}
	return buf
}

// Levels is how the controller judges a sample, signal by signal; nil if it is one that does not say. See
// [control.Controller.Levels].
func (w *Warden) Levels(s monitor.Sample) []control.Level {
	if w == nil {
		return nil
	}
	if g, ok := w.controller.(gauge); ok {
		return g.Levels(s)
	}
	return nil
}

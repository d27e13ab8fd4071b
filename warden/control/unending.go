// Work that does not end, such as streams and calls of a dependency that hangs: where it holds every slot, the limit rises
// without the executions that growth otherwise needs.

package control

import (
	"math"
	"slices"

	"github.com/stopbank/stopbank/warden/monitor"
)

const (
	silence   = 1.0  // seconds without an end after which the limit may rise, at least
	silences  = 8.0  // and at least that many times the 90th percentile of the last execution times
	raiseRate = 16.0 // slots per second
	raiseMost = 64.0 // slots
)

// unending is the work that does not end, as far as it is known to hold slots. The law of the service half sees only the
// concurrency beyond it: neither trial nor cut would end any of it.
type unending struct {
	slots  float64   // added to the limit
	last   []float64 // the last execution times, in seconds, oldest first
	sorted []float64 // sorted copy, as of the last bar
	silent float64   // seconds for which every slot was held and nothing ended
	proven float64   // the silence, in seconds, that raised slots last: what ends after that long was counted in slots
	mute   bool      // for the reasons: this has lasted too long
	rises  bool      // and the limit rises for it
}

// observe takes note of a sample. full reports whether every slot was held. An execution that ends after all takes its slot with
// it, and so does one that is discarded, whose time nobody knows. Where executions end, no more slots stay than are held. fewer
// reports whether some went.
func (u *unending) observe(s monitor.Service, dt float64, full bool) (fewer bool) {
	u.mute, u.rises = false, false
	ended := s.Count > 0 || s.Discarded > 0
	if u.silent += dt; ended || !full {
		u.silent = 0
	}
	if !ended {
		return false
	}
	left, times := u.slots-float64(s.Discarded), s.Times[:min(s.Count, uint64(len(s.Times)))]
	for _, t := range times {
		u.last = append(u.last, seconds(t))
		if seconds(t) >= u.proven {
			left -= float64(s.Count) / float64(len(times))
		}
	}
	if more := len(u.last) - many; more > 0 {
		u.last = append(u.last[:0], u.last[more:]...)
	}
	if left = min(left, finite(s.Concurrency)); left < 0.5 {
		left = 0
	}
	left = max(left, math.Floor(u.slots/2)) // step by step: C4
	fewer, u.slots = left < u.slots, left
	return fewer
}

// bar returns how many seconds nothing has to end before the limit rises.
func (u *unending) bar() float64 {
	if len(u.last) == 0 {
		return silence
	}
	u.sorted = append(u.sorted[:0], u.last...)
	slices.Sort(u.sorted)
	return max(silence, silences*u.sorted[len(u.sorted)*9/10])
}

// raise raises the limit after a silence, to no more than highest. A trial during which nothing ends has no result: its cut is
// undone first. The processors have to be calm. While tasks wait for a full pool, one more would only wait with them.
func (v *service) raise(dt, highest float64) {
	u := &v.unending
	if u.silent < silence || v.told.queue {
		return
	}
	bar := u.bar()
	if u.silent < bar {
		return
	}
	u.mute, u.proven = true, bar
	before := v.limit()
	if v.phase != watching {
		v.target = max(v.target, v.back)
		v.enter(watching)
	} else {
		u.slots += max(min(raiseRate*dt, raiseMost-u.slots, before, highest-before), 0)
	}
	u.rises = v.limit() > before
}

// limit returns the limit of this half.
func (v *service) limit() float64 { return v.target + v.unending.slots }

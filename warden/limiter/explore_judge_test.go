//go:build explore

// What a finished run is judged by: some order of its calls explains the answers, and at rest nothing is lost.

package limiter

import (
	"fmt"
	"strings"
)

// explained looks for an order of the calls, each at an instant between its beginning and its end, that a counter with a
// target could have answered with. A release that reports true decides first and gives the place back at a second instant of
// its own. A task that waits is granted its place at one instant of its call; that it is not granted one while there is
// one, the run itself shows by getting stuck.
func (w world) explained(d *driver) bool {
	type state struct {
		running, target, seq int
		closed               bool
	}
	calls := d.calls
	doneAt := make([]int, len(calls)) // 0 not begun, 1 decided (a release that won), 2 over
	decided := map[int]bool{}
	var search func(s state) bool
	search = func(s state) bool {
		minEnd := int(^uint(0) >> 1)
		left := false
		for i, c := range calls {
			if doneAt[i] < 2 {
				left = true
				if !c.unfinished {
					minEnd = min(minEnd, c.to)
				}
			}
		}
		if !left {
			return true
		}
		for i, c := range calls {
			if doneAt[i] == 2 || c.from > minEnd {
				continue
			}
			next, was, won := s, doneAt[i], false
			doneAt[i] = 2
			legal := true
			switch c.op {
			case "acquire":
				switch {
				case c.ok:
					legal = !s.closed && s.running < s.target
					next.running++
				case c.why == Closed:
					legal = s.closed
				case c.why == Canceled:
				case c.try && w.queue > 0:
					legal = true // somebody may have been waiting: not to be seen from the calls
				default:
					legal = !s.closed && s.running >= s.target && (c.why == PressureHigh) == (s.target == 0)
				}
			case "release":
				switch {
				case c.ok && was == 0:
					legal, won = !decided[c.id], true
					decided[c.id], doneAt[i] = true, 1
				case c.ok:
					next.running--
				default:
					legal = decided[c.id]
				}
			case "apply":
				if c.seq >= s.seq {
					next.seq, next.target = c.seq, c.target
				}
			case "close":
				next.closed = true
			}
			if legal && search(next) {
				return true
			}
			doneAt[i] = was
			if won && legal {
				decided[c.id] = false
			}
		}
		return false
	}
	return search(state{target: w.target, seq: 1})
}

// judge says what is wrong with a finished run, or nothing.
func (w world) judge(d *driver, stuck bool) string {
	switch {
	case stuck:
		return fmt.Sprintf("stuck: %d run, target %d, %d queued, %d places free", running(d.l.state.v.Load()), target(d.l.state.v.Load()), d.l.queue.waiting, d.free)
	case d.over != "":
		return d.over
	case !w.owned && !w.explained(d):
		return "no order of the calls explains the answers"
	}
	var want Stats
	for _, c := range d.calls {
		switch {
		case c.op == "acquire":
			want.Submitted++
			switch {
			case c.ok:
				want.Running++
			case c.why == Canceled:
				want.Canceled++
			default:
				want.Rejected++
			}
		case c.op == "release" && c.ok:
			want.Running--
			want.Executed++
		}
	}
	s := d.l.Stats()
	want.Target, want.byReason = s.Target, s.byReason
	if s != want {
		return fmt.Sprintf("Stats at rest: %+v; counted: %+v", s, want)
	}
	if w.owned && d.free+s.Running != w.free {
		return fmt.Sprintf("%d of %d places are free, with %d running", d.free, w.free, s.Running)
	}
	return ""
}

func (d *driver) history() string {
	var b strings.Builder
	for _, c := range d.calls {
		fmt.Fprintf(&b, "  [%d,%d] %s id=%d try=%v ok=%v %s target=%d unfinished=%v\n", c.from, c.to, c.op, c.id, c.try, c.ok, c.why, c.target, c.unfinished)
	}
	return b.String()
}

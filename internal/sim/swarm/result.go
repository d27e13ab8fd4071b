// The result of a run.

package swarm

import (
	"fmt"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Tally counts users by arrival time.
type Tally struct {
	Offered, Good          int
	Critical, CriticalGood int
}

// Share is answers in time per user.
func (t *Tally) Share() float64 { return float64(t.Good) / max(float64(t.Offered), 1) }

// CriticalShare is answers in time per critical user; 1 if there were none.
func (t *Tally) CriticalShare() float64 {
	if t.Critical == 0 {
		return 1
	}
	return float64(t.CriticalGood) / float64(t.Critical)
}

// Result is the result of one run.
type Result struct {
	World *World
	// All counts every user, Warm those who arrived after World.Warm. Early arrived within the first five execution times, Later after
	// them; Settled arrived after the twentieth and after World.Warm.
	All, Warm, Early, Later, Settled Tally
	// Latch is the longest time in seconds for which the limit was below the offered load while processors were idle and nothing
	// waited inside; LatchAt is its end.
	Latch, LatchAt float64
	// Inside is the highest number of attempts inside the service.
	Inside int
	// Least, Mean and Most of the concurrency limit while users arrived.
	Least, Most int
	Mean        float64
	// Why is the last decision's reasons while users arrived.
	Why string
	// Points is the time line, if requested.
	Points []Point

	// Attempts: all; asked, started and refused by the gate; answered in time and too late; and ended after the user had left, answered
	// or rejected. Stranded were still inside at the end.
	Attempts, Asked, Started, Refused, Answers, TooLate, Unheard, Deaf, Stranded int
	// Waited is the time before the start, Took the execution time, both over started attempts that ended.
	Waited, Took time.Duration
	// Computed is processor time, Elapsed the time of the run.
	Computed, Elapsed time.Duration

	trace   bool
	stretch float64 // current length of a latch
	targets float64 // number of ticks in Mean
	stats   limiter.Stats
	held    int // slots held at the end, as the engine counts
	queued  int // attempts in the limiter's queue at the end
}

// Point is one tick.
type Point struct {
	At                              time.Duration
	Target, Running, Waiting, Ready int
	Calls                           int // waiting for a slot of the dependency
	Sample                          monitor.Sample
	Rules                           decision.ControlDecision // applies from this tick on
}

func newResult(w *World, trace bool) *Result { return &Result{World: w, trace: trace} }

// note records one tick, with the concurrency limit since the last one. s is nil if no sample was taken.
func (r *Result) note(e *engine, target int, s *monitor.Sample, rules *decision.ControlDecision, waiting int) {
	w, at := r.World, e.now.Seconds()
	if at < w.Length {
		if r.targets++; r.targets == 1 {
			r.Least = target
		}
		r.Least, r.Most = min(r.Least, target), max(r.Most, target)
		r.Mean += (float64(target) - r.Mean) / r.targets
		if s != nil {
			r.latch(e, target, s.Utilization.Value)
		}
		if rules != nil {
			r.Why = reasons(rules)
		}
	}
	if !r.trace {
		return
	}
	p := Point{At: e.now, Target: target, Running: e.sensor.running, Waiting: waiting, Ready: e.service.ready.len(), Calls: e.service.calls.len()}
	if s != nil {
		p.Sample, p.Rules = *s, *rules
	}
	r.Points = append(r.Points, p)
}

// latch measures how long the limit has been too low without need. A moment of need does not end the latch: it subtracts three times
// its length.
func (r *Result) latch(e *engine, target int, used float64) {
	w := r.World
	at := e.now.Seconds()
	needs := min(w.rate(at), w.Capacity) * w.Service
	if used < 0.5 && e.service.idle() && float64(target) < 0.9*needs {
		if r.stretch += tick.Seconds(); r.stretch > r.Latch {
			r.Latch, r.LatchAt = r.stretch, at
		}
		return
	}
	r.stretch = max(0, r.stretch-3*tick.Seconds())
}

// Latched reports whether the limit stayed too low for longer than five execution times plus two seconds.
func (r *Result) Latched() bool { return r.Latch > 5*r.World.Service+2 }

// finish counts the users.
func (r *Result) finish(e *engine) {
	w := r.World
	e.service.account(e.now)
	r.Stranded, r.Elapsed, r.held = e.inside, e.now, e.sensor.running
	r.Computed += e.service.spent
	for i := range e.users {
		u := &e.users[i]
		at := u.at.Seconds()
		r.All.count(u)
		if at < 5*w.Service {
			r.Early.count(u)
		} else {
			r.Later.count(u)
		}
		if at >= w.Warm {
			r.Warm.count(u)
			if at >= 20*w.Service {
				r.Settled.count(u)
			}
		}
	}
}

// lost returns inconsistent counts: each attempt has one end, each user one outcome, limiter and engine agree, processor time is
// possible.
func (r *Result) lost() error {
	s := r.stats
	for what, ok := range map[string]bool{
		"attempts": r.Attempts == r.Answers+r.TooLate+r.Unheard+r.Refused+r.Deaf+r.Stranded,
		"users":    r.All.Good == r.Answers && r.All.Offered == r.Early.Offered+r.Later.Offered,
		"the limiter's counters": s.Submitted == 0 ||
			int(s.Submitted) == r.Asked && int(s.Executed)+s.Running == r.Started && s.Running == r.held && s.Queued == r.queued,
		"processor time": r.Computed <= time.Duration(r.World.Cores)*r.Elapsed,
	} {
		if !ok {
			return fmt.Errorf("seed %d: %s do not add up: %+v", r.World.Seed, what, *r)
		}
	}
	return nil
}

func (t *Tally) count(u *user) {
	t.Offered++
	critical := u.priority == limiter.Critical
	if critical {
		t.Critical++
	}
	if u.satisfied {
		t.Good++
		if critical {
			t.CriticalGood++
		}
	}
}

func reasons(d *decision.ControlDecision) (s string) {
	for i, r := range d.Reasons {
		if i > 0 {
			s += "; "
		}
		s += r.String()
	}
	return s
}

func sampleAt(t time.Time) monitor.Sample { return monitor.Sample{At: t} }

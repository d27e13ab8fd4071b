// SPDX-License-Identifier: Apache-2.0

// The result of a run: one outcome for each user, counts that must add up, and a time line.

package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Tally counts users by arrival time.
type Tally struct {
	Offered, Good          int
	Critical, CriticalGood int
	Left                   int // heard nothing
}

func (t *Tally) count(u *user) {
	critical := u.priority == decision.Critical
	t.Offered++
	t.Good += one(u.good)
	t.Left += one(!u.good && !u.refused)
	t.Critical += one(critical)
	t.CriticalGood += one(critical && u.good)
}

// Share is answers in time per user.
func (t *Tally) Share() float64 { return float64(t.Good) / max(float64(t.Offered), 1) }

// LeftShare is users who left without a word per user.
func (t *Tally) LeftShare() float64 { return float64(t.Left) / max(float64(t.Offered), 1) }

// CriticalShare is answers in time per critical user; 1 if there were none.
func (t *Tally) CriticalShare() float64 {
	if t.Critical == 0 {
		return 1
	}
	return float64(t.CriticalGood) / float64(t.Critical)
}

// deviation is the standard deviation of CriticalShare by chance.
func (t *Tally) deviation() float64 {
	p := t.CriticalShare()
	return math.Sqrt(p * (1 - p) / max(float64(t.Critical), 1))
}

// Result is the result of one run.
type Result struct {
	World *World
	Guard string
	// All counts every user. Everything else counts only those whose patience ends before the load does: Early those of the first
	// five mean execution times, Later those after them, Warm those who arrived after World.Warm, Kinds the same by kind, Settled
	// those of Warm after the twentieth mean execution time.
	All, Warm, Early, Later, Settled Tally
	Kinds                            []Tally
	// Latch is the longest time in seconds for which the limit was below the offered load while processors were idle and nothing
	// waited inside; LatchAt is its end.
	Latch, LatchAt float64
	// Inside is the highest number of attempts inside the service.
	Inside int
	// Least, Mean and Most of the concurrency limit while users arrived.
	Least, Most int
	Mean        float64
	// Killed is when the process ran out of memory, which ends the run; 0: it did not. Tightened is how many decisions lowered the
	// limit for memory.
	Killed    time.Duration
	Tightened int
	// Heaviest is the most that was reachable, in bytes.
	Heaviest float64
	// Why is the last decision's reasons while users arrived.
	Why string

	// Sent are all messages to servers, Asked those that reached a gate, Started and Refused its answers and those of servers that
	// are down, Executed those started that ended. Stranded were still inside at the end.
	Sent, Asked, Started, Refused, Executed, Stranded int
	// Attempts of users and their ends: an answer in time, a rejection, or silence until the end of patience.
	Attempts, Answers, Refusals, Timeouts int
	// Waited is the time before the start, Took the execution time, both over started attempts that ended.
	Waited, Took time.Duration
	// Computed is processor time, Elapsed the time of the run.
	Computed, Elapsed time.Duration

	trace   bool
	users   []user          // with trace
	points  []point         // with trace
	tries   []time.Duration // with trace: when users sent their attempts
	hops    []executions
	stretch float64       // current length of a latch
	ticks   float64       // in Mean
	stats   limiter.Stats // of all limiters; held and queued are the engine's counts of slots and queued attempts
	held    int
	queued  int
}

// executions of a hop, and those whose user had left.
type executions struct{ all, wasted int }

// point is one tick of a server.
type point struct {
	server                          int
	at                              time.Duration
	target, running, waiting, ready int
	calls                           int // waiting for a dependency
	sample                          monitor.Sample
	rules                           decision.ControlDecision // applies from this tick on
}

func (r *Result) try(now time.Duration) {
	r.Attempts++
	if r.trace {
		r.tries = append(r.tries, now)
	}
}

func (r *Result) executed(a *attempt, now time.Duration) {
	r.Executed++
	r.Took += now - a.began
	r.hops[a.on.hop].all++
	r.hops[a.on.hop].wasted += one(now > a.worth)
}

// note records one tick, with the concurrency limit since the last one. Without a sample there are neither readings nor rules.
func (r *Result) note(v *server, target int, s monitor.Sample, rules decision.ControlDecision, waiting int) {
	if at := v.e.now.Seconds(); at < r.World.Length {
		if r.ticks++; r.ticks == 1 {
			r.Least = target
		}
		r.Least, r.Most = min(r.Least, target), max(r.Most, target)
		r.Mean += (float64(target) - r.Mean) / r.ticks
		if s.Gap > 0 {
			r.Why = reasons(rules)
			r.Tightened += one(slices.ContainsFunc(rules.Reasons, func(why decision.Reason) bool {
				return why.Code() == "memory" && strings.HasSuffix(why.String(), "(tighten)")
			}))
			r.latch(v, target, s.Utilization.Value)
		}
	}
	if r.trace {
		r.points = append(r.points, point{
			v.index, v.e.now, target, v.sensor.running, waiting, len(v.ready), v.e.calling(), s, rules,
		})
	}
}

// latch measures how long the limit of the only server has been too low without need. A moment of need does not end the latch: it
// subtracts three times its length.
func (r *Result) latch(v *server, target int, used float64) {
	at := v.e.now.Seconds()
	needs := min(r.World.rate(at), r.World.capacity(at)) * r.World.service()
	if len(v.e.servers) == 1 && used < 0.5 && v.idle() && float64(target) < 0.9*needs {
		if r.stretch += tick.Seconds(); r.stretch > r.Latch {
			r.Latch, r.LatchAt = r.stretch, at
		}
		return
	}
	r.stretch = max(0, r.stretch-3*tick.Seconds())
}

// Latched reports whether the limit stayed too low for longer than five execution times plus two seconds.
func (r *Result) Latched() bool { return r.Latch > 5*r.World.service()+2 }

func (r *Result) finish(e *engine) {
	w, service := r.World, r.World.service()
	r.Stranded, r.Elapsed, r.Kinds = e.inside, e.now, make([]Tally, len(w.Kinds))
	for _, s := range e.servers {
		s.account(e.now)
		r.Computed += s.spent
		r.held += s.sensor.running
	}
	for i := range e.users {
		u := &e.users[i]
		at := u.at.Seconds()
		if u.kind == &endless || u.kind.Outside {
			continue
		}
		r.All.count(u)
		switch {
		case u.at+w.outlast(u.patience) > seconds(w.Length):
		case at < 5*service:
			r.Early.count(u)
		default:
			r.Later.count(u)
		}
		if !w.counts(u) {
			continue
		}
		r.Warm.count(u)
		for k := range w.Kinds {
			if u.kind == &w.Kinds[k] {
				r.Kinds[k].count(u)
			}
		}
		if w.settled(u) {
			r.Settled.count(u)
		}
	}
	if r.trace {
		r.users = e.users
	}
}

// check returns the counts that do not add up: each attempt has one end for its sender and one on its server, each user one
// outcome, limiters and engine agree, and processor time is possible.
func (r *Result) check() error {
	s := r.stats
	servers := max(1, r.World.Servers) * len(r.hops)
	var wrong []string
	for what, ok := range map[string]bool{
		"attempts": r.Sent == r.Executed+r.Refused+r.Stranded && (r.World.Cut || r.Attempts == r.Answers+r.Refusals+r.Timeouts),
		"users":    (r.World.Cut || r.All.Good == r.Answers) && r.All.Offered >= r.Early.Offered+r.Later.Offered,
		"the limiter's counters": s.Submitted == 0 ||
			int(s.Submitted) == r.Asked && int(s.Executed)+s.Running == r.Started && s.Running == r.held && s.Queued == r.queued,
		"processor time": r.Computed <= time.Duration(servers*r.World.Cores)*r.Elapsed,
	} {
		if !ok {
			wrong = append(wrong, what)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	short := *r
	short.users, short.points, short.tries = nil, nil, nil
	return fmt.Errorf("seed %d %s: %q do not add up: %+v", r.World.Seed, r.World.Name, wrong, short)
}

func reasons(d decision.ControlDecision) string {
	var all []string
	for _, r := range d.Reasons {
		all = append(all, r.String())
	}
	return strings.Join(all, "; ")
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

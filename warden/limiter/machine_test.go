// SPDX-License-Identifier: Apache-2.0

// A machine that drives a limiter and its model side by side in virtual time, and fails at the first difference, in words that
// begin with the number that it is about.

package limiter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/queue"
)

// setup is a shape of limiter.
type setup struct {
	maxQueue, every, target int
}

// A move is an operation and two numbers that say which.
type move struct{ op, a, b int }

type machine struct {
	fatalf func(format string, args ...any)
	l      *Limiter
	m      *model
	draw   float64
	tasks  []*taskRun
	seq    uint64
	events map[decision.Outcome]*atomic.Int64 // counted by the observer
	ended  endings                            // of these, tasks that did not end well
}

// taskRun is a task at the limiter, beside the model's.
type taskRun struct {
	is       *taskModel
	cancel   context.CancelFunc
	returned bool
	settled  bool // it has ended, and was compared with the model since
	permit   Permit
	err      error
}

func (x *machine) Observe(e Event) {
	x.events[e.Outcome].Add(1)
	x.ended.Observe(e)
}

func newMachine(s setup, fatalf func(string, ...any)) *machine {
	x := &machine{fatalf: fatalf, events: map[decision.Outcome]*atomic.Int64{}}
	for _, o := range []decision.Outcome{decision.Started, decision.Executed, decision.Rejected, decision.OutcomeCanceled,
		decision.ModeChanged} {
		x.events[o] = new(atomic.Int64)
	}
	first := decision.ControlDecision{Seq: 1, TargetConcurrency: s.target, Parked: 2}
	cfg := Config{
		Name: "m", MaxQueue: s.maxQueue, Initial: first, StarvationEvery: s.every,
		Rand: func() float64 { return x.draw }, Observer: x,
	}
	x.m = &model{
		maxQueue: s.maxQueue, every: s.every,
		d: first, seq: 1, decisionState: decision.Initial, staleAt: never, empty: map[decision.Priority]time.Duration{},
	}
	l, err := New(cfg)
	if err != nil {
		fatalf("New: %v", err)
	}
	x.l, x.seq = l, 1
	return x
}

var priorities = []decision.Priority{-128, decision.Background, decision.Normal, 1, decision.High, decision.Critical}

// kindNames are the kinds of work of a machine; of the last one no decision knows anything.
var kindNames = []string{"", "quick", "slow", "unknown"}

// submit asks for a task to run. Deadlines lie between the instants at which steps are made.
func (x *machine) submit(a, b int, try bool) {
	t := Task{Name: kindNames[b/3%len(kindNames)], ID: fmt.Sprint("task ", len(x.tasks)), Priority: priorities[a%len(priorities)],
		Patient: b%7 == 0}
	due, now := never, time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	limit := time.Duration(b/4%8)*8*time.Millisecond + 300*time.Microsecond
	switch b % 4 {
	case 1:
		t.Deadline, due = now.Add(limit), x.m.now+limit
	case 2:
		ctx, cancel = context.WithDeadline(ctx, now.Add(limit))
		due = x.m.now + limit
		if try {
			due = never // TryAcquire has no context
		}
	case 3:
		if b%5 == 0 {
			t.Deadline, due = now.Add(-limit), x.m.now-limit
		}
	}
	x.draw = float64(b%10) / 10
	if b%11 == 10 {
		x.draw = 0.99
	}
	run := &taskRun{is: &taskModel{id: len(x.tasks), name: t.Name, trial: x.draw == 0.99, priority: t.Priority, due: due,
		patient: t.Patient || t.Priority == decision.Critical}, cancel: cancel}
	x.tasks = append(x.tasks, run)
	go func() {
		if try {
			run.permit, run.err = x.l.TryAcquire(t)
		} else {
			run.permit, run.err = x.l.Acquire(ctx, t)
		}
		run.returned = true
	}()
	synctest.Wait()
	x.m.submit(run.is, try, x.draw)
}

// release releases a permit in use, or, by an odd number, any that was ever given out, also for the second time. Of three tasks
// one is abandoned, and one fails.
func (x *machine) release(a, b int) {
	some := x.tasks
	if a%2 == 0 {
		some = slices.DeleteFunc(slices.Clone(some), func(run *taskRun) bool { return run.is.state != runs })
	}
	if len(some) > 0 {
		x.releaseTask(some[a/2%len(some)], ending(uint(b)%3)) //nolint:gosec // it is small
	}
}

func (x *machine) releaseTask(run *taskRun, how ending) {
	end := map[ending]func() bool{answered: run.permit.Release, abandoned: run.permit.Abandon, failed: run.permit.Fail}[how]
	got, want := end(), x.m.release(run.is)
	run.is.abandoned = run.is.abandoned || want && how == abandoned
	run.is.failed = run.is.failed || want && how == failed
	switch {
	case got && !want:
		x.fatalf("Q6: task %d was released twice", run.is.id)
	case !got && want:
		x.fatalf("Q8: task %d had lost its slot while it ran", run.is.id)
	}
}

// park has a task that was started at any time run on without its slot.
func (x *machine) park(a int) {
	if len(x.tasks) == 0 {
		return
	}
	run := x.tasks[a%len(x.tasks)]
	if got, want := run.permit.Park(), x.m.park(run.is); got != want {
		x.fatalf("Q24: task %d: Park() = %t, want %t", run.is.id, got, want)
	}
}

func (x *machine) cancel(a int) {
	if len(x.tasks) == 0 {
		return
	}
	run := x.tasks[a%len(x.tasks)]
	run.cancel()
	x.m.cancel(run.is)
}

// apply applies a decision: one in eight is older than what rules, one in eight malformed.
func (x *machine) apply(a, b int) {
	d := decision.ControlDecision{
		Seq: x.seq + 1, TargetConcurrency: a % 5, Parked: b % 4,
		ShedProbability: []float64{0, 0.25, 0.5, 0.75, 1}[b%5],
		Expected:        time.Duration(a/5%3) * 8 * time.Millisecond,
		Burst:           []time.Duration{0, 7 * time.Millisecond, 40 * time.Millisecond}[(a+b)%3],
		Needs: []map[string]time.Duration{nil, {"quick": 3 * time.Millisecond, "slow": 24 * time.Millisecond},
			{"": 8 * time.Millisecond, "slow": time.Hour}}[(a+b)%3],
		MaxWait: []time.Duration{0, 30 * time.Millisecond, 500 * time.Millisecond}[(a+b)/3%3],
		Yields:  b % 3,
	}
	if b/5%3 == 1 {
		d.ValidFor = time.Duration(a%7)*10*time.Millisecond + 700*time.Microsecond
		if b%2 == 0 {
			d.Stale = &decision.ControlDecision{TargetConcurrency: a % 3, ShedProbability: 0.5,
				Expected: time.Duration(b%2) * 16 * time.Millisecond, Needs: map[string]time.Duration{"slow": 16 * time.Millisecond}}
		}
	}
	switch (a + b) % 8 {
	case 0:
		d.Seq = x.seq - 1
	case 1:
		bad := d
		bad.ShedProbability, bad.TargetConcurrency, bad.Parked, bad.Expected, bad.Yields = math.Inf(1), -3, -2, -1, -1
		bad.Needs = map[string]time.Duration{"": -1, "quick": math.MinInt64}
		x.l.Apply(bad)
		d.ShedProbability, d.TargetConcurrency, d.Parked, d.Expected, d.Yields, d.Needs = 1, 0, 0, 0, 0, nil
		x.seq, x.m.seq = d.Seq, d.Seq
		x.m.apply(d)
		return
	}
	x.l.Apply(d)
	x.m.apply(d)
	x.seq = max(x.seq, d.Seq)
}

// ops are the operations of one mode.
var ops = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11}

func (x *machine) step(s move) {
	switch s.op % 12 {
	case 0, 1, 2:
		x.submit(s.a, s.b, false)
	case 3:
		x.submit(s.a, s.b, true)
	case 4:
		x.release(s.a, s.b)
	case 5:
		x.cancel(s.a)
	case 6:
		d := time.Duration(s.a%32) * time.Millisecond
		time.Sleep(d)
		x.m.advance(d)
	case 7:
		x.apply(s.a, s.b)
	case 8:
		if s.a == 0 && s.b%4 == 0 {
			x.l.Close()
			x.m.close()
		}
	case 9:
		x.crowd(s.a, s.b)
	case 10:
		x.setMode(decision.Mode(s.a % int(decision.Bypass+1)))
	case 11:
		x.park(s.a)
	}
	synctest.Wait()
	x.check()
}

func (x *machine) setMode(mode decision.Mode) {
	if err := x.l.SetMode(mode); err != nil {
		x.fatalf("SetMode(%s): %v", mode, err)
	}
	x.m.setMode(mode)
}

// crowd lets eighteen tasks without a deadline come one after the other, and leave if they wait for long.
func (x *machine) crowd(a, b int) {
	if b%8 == 7 {
		time.Sleep(3 * time.Second)
		x.m.advance(3 * time.Second)
		synctest.Wait()
	}
	for range 18 {
		x.submit(a, 0, false)
		d := time.Duration(1+b%4) * 15 * time.Millisecond
		time.Sleep(d)
		x.m.advance(d)
		synctest.Wait()
		x.cancel(len(x.tasks) - 1)
		synctest.Wait()
	}
}

// check compares all that can be seen.
func (x *machine) check() {
	var want Stats
	for _, run := range x.tasks {
		x.checkTask(run)
		if run.is.state == runs && !run.is.parked {
			want.OldestRunning = max(want.OldestRunning, x.m.now-run.is.since-run.is.waited)
		}
		for _, tally := range []*Tally{&want.Tally, &want.classes[classOf(run.is.priority)]} {
			tally.Submitted++
			if run.is.would != "" {
				tally.WouldReject++
				tally.wouldReject[queue.RejectedFor(run.is.would)]++
			}
			switch run.is.state {
			case waits:
				tally.Queued++
			case runs:
				if run.is.parked {
					tally.Parked++
				} else {
					tally.Running++
				}
			case ended:
				tally.Executed++
				if run.is.abandoned {
					tally.Abandoned++
				}
				if run.is.failed {
					tally.Failed++
				}
			case rejected:
				tally.byReason[queue.RejectedFor(run.is.reason)]++
				if run.is.reason == decision.Canceled {
					tally.Canceled++
				} else {
					tally.Rejected++
				}
			}
		}
	}
	events := map[decision.Outcome]uint64{
		decision.Started: uint64(want.Running+want.Parked) + want.Executed, decision.Executed: want.Executed, decision.Rejected: want.Rejected,
		decision.OutcomeCanceled: want.Canceled, decision.ModeChanged: x.m.changes,
	}
	want.Target, want.DecisionState, want.Mode = x.m.d.TargetConcurrency, x.m.decisionState, x.m.mode
	switch got := x.l.Stats(); {
	case got.Queued > x.m.maxQueue:
		x.fatalf("Q3: %d wait, at most %d may", got.Queued, x.m.maxQueue)
	case got.Mode == decision.Enforce && got.Queued > 0 && got.Running < got.Target && x.m.canStart():
		x.fatalf("Q9: %d wait, %d run, the target is %d", got.Queued, got.Running, got.Target)
	case got.Mode != want.Mode:
		x.fatalf("Q18: the mode is %s, want %s", got.Mode, want.Mode)
	case got.Target != want.Target || got.DecisionState != want.DecisionState:
		x.fatalf("Q13: target %d, %s; want %d, %s", got.Target, got.DecisionState, want.Target, want.DecisionState)
	case got.OldestRunning != want.OldestRunning:
		x.fatalf("Q21: the oldest runs for %s, want %s", got.OldestRunning, want.OldestRunning)
	case got.Abandoned != want.Abandoned || got.Abandoned != x.ended.abandoned.Load():
		x.fatalf("Q22: %d were abandoned, and %d events tell so; want %d", got.Abandoned, x.ended.abandoned.Load(), want.Abandoned)
	case got.Parked != want.Parked || got.Running != want.Running:
		x.fatalf("Q24: %d run and %d are parked, want %d and %d", got.Running, got.Parked, want.Running, want.Parked)
	case got.Failed != want.Failed || got.Failed != x.ended.failed.Load():
		x.fatalf("Q23: %d failed, and %d events tell so; want %d", got.Failed, x.ended.failed.Load(), want.Failed)
	case got != want:
		x.fatalf("Q6: Stats = %+v, want %+v", got, want)
	}
	for outcome, want := range events {
		if got := uint64(x.events[outcome].Load()); got != want {
			x.fatalf("Q6: %d events tell of tasks %s, want %d", got, outcome, want)
		}
	}
}

// classOf is the slot of a priority among the four classes.
func classOf(p decision.Priority) (class int) {
	for i, least := range []decision.Priority{lowest, decision.Normal, decision.High, decision.Critical} {
		if p >= least {
			class = i
		}
	}
	return class
}

func (x *machine) checkTask(run *taskRun) {
	t := run.is
	if run.settled {
		return
	}
	run.settled = t.state == rejected
	var e decision.Explanation
	var r *decision.Rejection
	switch {
	case !run.returned:
		if t.state != waits {
			x.fatalf("%s: task %d waits; want %+v", about(t, waits, ""), t.id, *t)
		}
		return
	case run.err == nil:
		if t.state == ended {
			if (run.permit.Explain() != decision.Explanation{}) {
				x.fatalf("Q7: task %d: a released permit explains %v", t.id, run.permit.Explain())
			}
			return
		}
		e = run.permit.Explain()
	case !errors.As(run.err, &r) || !errors.Is(run.err, decision.ErrRejected):
		x.fatalf("Q7: task %d: %v", t.id, run.err)
	default:
		e = r.Explanation
		if errors.Is(r, context.Canceled) != (r.Reason == decision.Canceled) ||
			errors.Is(r, context.DeadlineExceeded) != (r.Reason == decision.DeadlineExceeded) {
			x.fatalf("Q7: task %d: %v wraps %v", t.id, r, r.Unwrap())
		}
	}
	state := map[decision.Outcome]taskState{decision.Started: runs, decision.Rejected: rejected,
		decision.OutcomeCanceled: rejected}[e.Outcome]
	if t.reason == decision.DeadlineExceeded || t.reason == decision.MaxWaitExceeded {
		e.QueueLen = t.queueLen // several may leave at one instant, in any order
	}
	wrong := ""
	switch {
	case e.WouldReject != t.would || e.Mode != t.mode:
		wrong = "Q17"
	case t.mode == decision.Enforce && state == runs && t.state != runs && x.l.Stats().Running > e.Decision.TargetConcurrency:
		wrong = "Q1"
	case state != t.state || e.Reason != t.reason:
		wrong = about(t, state, e.Reason)
	case e.Grant != t.grant && (e.Grant == "starvation_turn" || t.grant == "starvation_turn"):
		wrong = "Q14"
	case e.Grant != t.grant:
		wrong = "Q4"
	case e.DecisionState != t.decisionState || !sameDecision(*e.Decision, t.decision):
		wrong = "Q13"
	case e.MaxWait != t.maxWait:
		wrong = "Q16"
	case e.Task.Priority != t.priority || e.Task.Name != t.name || e.Task.ID != fmt.Sprint("task ", t.id) || e.Waited != t.waited ||
		e.InFlight != t.inFlight || e.QueueLen != t.queueLen:
		wrong = "Q7"
	case e.ShedBelow != t.cut:
		wrong = "Q10"
	}
	if wrong != "" {
		x.fatalf("%s: task %d: %v\nwant %+v", wrong, t.id, e, *t)
	}
}

// about is the number that speaks of how a task should have fared, where it has fared in another way.
func about(want *taskModel, got taskState, reason decision.RejectionReason) string {
	switch {
	case want.state == rejected:
		reason = want.reason
	case got != rejected:
		reason = ""
	}
	switch {
	case reason == decision.Canceled:
		return "Q12"
	case reason == decision.DeadlineExceeded:
		return "Q5"
	case reason == decision.MaxWaitExceeded:
		return "Q16"
	case reason == decision.PressureHigh || reason == decision.ProbabilisticShedding:
		return "Q10"
	case reason == decision.NoSlot || want.reason == decision.NoSlot:
		return "Q20"
	case reason == decision.QueueOverflow || reason == decision.PriorityDrop:
		return "Q11"
	case reason == decision.Closed:
		return "Q9"
	case want.state == runs && want.grant == "slot_free":
		return "Q2"
	case want.grant == "starvation_turn":
		return "Q14"
	case got == runs || want.state == runs:
		return "Q4" // somebody else's turn
	}
	return "Q9"
}

func sameDecision(a, b decision.ControlDecision) bool {
	return a.Seq == b.Seq && a.TargetConcurrency == b.TargetConcurrency && a.Parked == b.Parked && a.ShedProbability == b.ShedProbability &&
		a.Expected == b.Expected &&
		maps.Equal(a.Needs, b.Needs)
}

// stop lets every goroutine of the machine end.
func (x *machine) stop() {
	x.l.Close()
	for _, run := range x.tasks {
		run.cancel()
	}
	synctest.Wait()
}

// SPDX-License-Identifier: Apache-2.0

// What time does: tasks that miss their deadlines, and decisions that run out (Q5, Q9, Q13).

package limiter

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// TestDeadlines has tasks leave the queue at their deadlines, by whichever they come, and rejects what can no longer
// finish.
func TestDeadlines(t *testing.T) {
	t.Run("leaves then", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			l, p := occupied(t, Config{})
			q := newLine(t, l)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			q.join(Task{Name: "own", Deadline: time.Now().Add(30 * time.Millisecond)})
			q.joinCtx(ctx, Task{Name: "context's"})
			q.joinCtx(ctx, Task{Name: "both", Deadline: time.Now().Add(40 * time.Millisecond)})
			q.join(Task{Name: "wall clock", Deadline: time.Now().Add(60 * time.Millisecond).Round(0)})
			q.join(Task{Name: "later", Deadline: time.Now().Add(time.Hour)})
			for _, at := range []struct {
				name string
				left int
			}{{"own", 4}, {"both", 3}, {"context's", 2}, {"wall clock", 1}} {
				if q.rejection(at.name) != nil {
					t.Errorf("Q5: %s left before its deadline", at.name)
				}
				time.Sleep(30 * time.Millisecond / 3)
				if at.name == "own" {
					time.Sleep(20 * time.Millisecond)
				}
				synctest.Wait()
				q.wantRejected(at.name, decision.DeadlineExceeded)
				if n := l.Stats().Queued; n != at.left {
					t.Errorf("Q5: %d wait after %s has left", n, at.name)
				}
			}
			q.wantOrder(p, "later")
		})
	})
	t.Run("cannot finish", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			d := fixed(1)
			const need = 30 * time.Millisecond
			d.Expected, d.Needs = time.Minute, needs(need, "at once", "just", "soon", "more")
			l, p := occupied(t, Config{Initial: d})
			q := newLine(t, l)
			in := func(d time.Duration) time.Time { return time.Now().Add(d) }
			q.join(Task{Name: "at once", Deadline: in(need - 1)})
			q.wantRejected("at once", decision.DeadlineExceeded)
			q.join(Task{Name: "just", Deadline: in(need + 5*time.Millisecond)})
			q.join(Task{Name: "soon", Deadline: in(need + 10*time.Millisecond)})
			sleep(5 * time.Millisecond) // just enough is left
			if q.rejection("just") != nil {
				t.Fatal("Q5: rejected with what it needs")
			}
			p.Release()
			synctest.Wait()
			p = q.permits["just"]
			sleep(5*time.Millisecond + 1)
			if r := q.wantRejected("soon", decision.DeadlineExceeded); r.Waited != 10*time.Millisecond+1 {
				t.Errorf("Q5: it left after %v", r.Waited)
			}
			q.join(Task{Name: "more", Deadline: in(need + 10*time.Millisecond)})
			d.Seq, d.Needs = 2, needs(35*time.Millisecond, "more")
			l.Apply(d)
			sleep(6 * time.Millisecond)
			p.Release() // its turn comes while 34 ms are left
			synctest.Wait()
			q.wantRejected("more", decision.DeadlineExceeded)
		})
	})
	t.Run("less is needed meanwhile", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			d := fixed(1)
			d.Needs = needs(30*time.Millisecond, "x")
			l, p := occupied(t, Config{Initial: d})
			q := newLine(t, l)
			q.join(Task{Name: "x", Deadline: time.Now().Add(50 * time.Millisecond)})
			d.Seq, d.Needs = 2, needs(10*time.Millisecond, "x")
			l.Apply(d)
			sleep(40 * time.Millisecond)
			if q.rejection("x") != nil {
				t.Fatal("Q5: it left although it could still finish")
			}
			sleep(1)
			q.wantRejected("x", decision.DeadlineExceeded)
			p.Release()
		})
	})
	t.Run("without waiting", func(t *testing.T) {
		l := mustNew(t, Config{})
		past := Task{Deadline: time.Now().Add(-time.Second)}
		_, err := l.Acquire(t.Context(), past)
		wantReason(t, err, decision.DeadlineExceeded)
		_, err = l.TryAcquire(past)
		wantReason(t, err, decision.DeadlineExceeded)
		ctx, cancel := context.WithDeadline(t.Context(), past.Deadline)
		defer cancel()
		_, err = l.Acquire(ctx, Task{})
		wantReason(t, err, decision.DeadlineExceeded)
		if p, err := l.Acquire(t.Context(), Task{Deadline: time.Now().Add(time.Hour)}); err != nil || !p.Release() {
			t.Fatal(err)
		}
	})
}

// TestAFreeSlotAndLittleTime has tasks arrive with less time left than they need: a free slot starts each of them, however it
// asks; without one only their rejection is certain to help somebody else.
func TestAFreeSlotAndLittleTime(t *testing.T) {
	for _, yields := range []int{0, 3} {
		for _, mode := range []decision.Mode{decision.Enforce, decision.DryRun} {
			bubble(t, func(t *testing.T) {
				d := fixed(3)
				d.Needs, d.Yields = needs(time.Second, ""), yields
				l := mustNew(t, Config{Initial: d, MaxQueue: 8, Mode: mode, Rand: noTrial})
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				task := Task{Deadline: time.Now().Add(40 * time.Millisecond)}
				first, err := l.Acquire(ctx, Task{})
				second, also := l.TryAcquire(task)
				third, last := l.Acquire(t.Context(), task)
				if err != nil || also != nil || last != nil {
					t.Fatalf("Q2: three slots, three tasks, %v: %v, %v, %v", mode, err, also, last)
				}
				if n := l.Stats().WouldReject; n != 0 {
					t.Errorf("Q17: a dry run would reject %d tasks that have a free slot", n)
				}
				fourth, err := l.Acquire(t.Context(), task)
				if mode == decision.Enforce {
					wantReason(t, err, decision.DeadlineExceeded)
				} else if n := l.Stats().WouldRejectFor(decision.DeadlineExceeded); err != nil || n != 1 {
					t.Errorf("Q17: a task without a free slot: %v, %d counted", err, n)
				}
				for _, p := range []Permit{first, second, third, fourth} {
					p.Release()
				}
			})
		}
	}
}

// lingering is a context that lets time pass when it is asked for the second time.
type lingering struct {
	context.Context
	asked int
	pause time.Duration
}

func (c *lingering) Err() error {
	if c.asked++; c.asked == 2 {
		time.Sleep(c.pause)
	}
	return nil
}

// TestLittleTimeAtTheLastLook has less time left than a task needs when it looks for the last time: it gives its slot to
// somebody who waits, and keeps it if nobody does.
func TestLittleTimeAtTheLastLook(t *testing.T) {
	for _, waits := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			d := fixed(1)
			d.Needs, d.Yields = needs(30*time.Millisecond, "first"), 1
			l := mustNew(t, Config{Initial: d, MaxQueue: 8, Rand: noTrial})
			q := newLine(t, l)
			q.joinCtx(&lingering{Context: context.Background(), pause: 40 * time.Millisecond},
				Task{Name: "first", Deadline: time.Now().Add(60 * time.Millisecond)})
			if waits {
				q.join(Task{Name: "second"})
			}
			sleep(40 * time.Millisecond)
			if r := q.rejection("first"); (r != nil) != waits {
				t.Fatalf("Q15: with 20 of 30 ms left, somebody waits: %v; %v", waits, r)
			}
			for _, p := range q.permits {
				p.Release()
			}
		})
	}
}

// TestStale lets decisions run out: the Stale one rules, and is never higher; without one, the target is kept.
func TestStale(t *testing.T) {
	const valid = 100 * time.Millisecond
	for _, c := range []struct {
		name   string
		stale  *decision.ControlDecision
		target int
	}{
		{"with a lower one", &decision.ControlDecision{TargetConcurrency: 2}, 2},
		{"with a higher one", &decision.ControlDecision{TargetConcurrency: 9}, 5},
		{"with none", nil, 5},
		{"with one that would expire too", &decision.ControlDecision{TargetConcurrency: 3, ValidFor: 1,
			Stale: &decision.ControlDecision{}}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := mustNew(t, Config{Initial: fixed(1)})
				decisionState := func() decision.DecisionState {
					p := must(l.TryAcquire(Task{}))(t)
					defer p.Release()
					return p.Explain().DecisionState
				}
				if got := decisionState(); got != decision.Initial {
					t.Errorf("Q13: before any decision: %s", got)
				}
				d := decision.ControlDecision{Seq: 2, TargetConcurrency: 5, ValidFor: valid, Stale: c.stale}
				l.Apply(d)
				sleep(valid)
				if got := decisionState(); got != decision.Applied || l.Stats().Target != 5 {
					t.Errorf("Q13: while it is valid: %s, target %d", got, l.Stats().Target)
				}
				sleep(1)
				if got := decisionState(); got != decision.Stale || l.Stats().Target != c.target {
					t.Errorf("Q13: afterwards: %s, target %d", got, l.Stats().Target)
				}
				sleep(time.Hour)
				if got := decisionState(); got != decision.Stale || l.Stats().Target != c.target {
					t.Errorf("Q13: much later: %s, target %d", got, l.Stats().Target)
				}
				l.Apply(decision.ControlDecision{Seq: 1, TargetConcurrency: 50})
				if decisionState() != decision.Stale {
					t.Error("Q13: an older decision renewed it")
				}
				d.Seq = 3
				l.Apply(d)
				sleep(valid / 2)
				l.Apply(d) // renewed: the first timer must not end it
				sleep(valid)
				if got := decisionState(); got != decision.Applied || l.Stats().Target != 5 {
					t.Errorf("Q13: renewed: %s, target %d", got, l.Stats().Target)
				}
			})
		})
	}
	t.Run("a late timer", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			l := mustNew(t, Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 5, ValidFor: valid,
				Stale: &decision.ControlDecision{}}})
			l.expiry.Stop()
			time.Sleep(valid + 1)
			_, err := l.Acquire(t.Context(), Task{Deadline: time.Now().Add(time.Hour)})
			if r := wantReason(t, err, decision.PressureHigh); r.DecisionState != decision.Stale {
				t.Errorf("Q13: %v", r)
			}
		})
	})
}

// taskEnding is a context that ends without telling anybody who waits.
type taskEnding struct {
	context.Context
	over atomic.Bool
}

func (c *taskEnding) Err() error {
	if c.over.Load() {
		return context.Canceled
	}
	return nil
}

// TestASlotThatComesTooLateGoesOn grants a slot to a task whose context has ended: it goes to the next.
func TestASlotThatComesTooLateGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, p := occupied(t, Config{})
		q := newLine(t, l)
		ctx := &taskEnding{Context: context.Background()}
		q.joinCtx(ctx, Task{Name: "late"})
		q.join(Task{Name: "next"})
		ctx.over.Store(true)
		if got := q.drain(p); len(got) != 1 || got[0] != "next" {
			t.Errorf("Q9: %v started, want next", got)
		}
		q.wantRejected("late", decision.Canceled)
	})
}

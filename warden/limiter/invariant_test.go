// SPDX-License-Identifier: Apache-2.0

// Starting, waiting and ending (Q1 to Q4, Q6, Q8), each as plainly as it can be shown. The machine holds them
// against everything else.

package limiter

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// TestShrinksByAttrition lowers the target under running tasks: none starts until enough have ended.
func TestShrinksByAttrition(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := mustNew(t, Config{MaxQueue: 10, Initial: fixed(3)})
		q := newLine(t, l)
		for i := range 5 {
			q.join(named(i, 0))
		}
		l.Apply(decision.ControlDecision{Seq: 2, TargetConcurrency: 1})
		for i, want := range []int{3, 3, 3} { // three ran; two end, nobody starts; the third ends, one starts
			if s := l.Stats(); len(q.started) != want || s.Running != 3-i || s.Queued != 2 {
				t.Fatalf("Q1: after %d endings: %d started, %+v", i, len(q.started), s)
			}
			q.permits[q.started[i]].Release()
			synctest.Wait()
		}
		if s := l.Stats(); len(q.started) != 4 || s.Running != 1 {
			t.Fatalf("Q1: %d started, %+v", len(q.started), s)
		}
		l.Apply(decision.ControlDecision{Seq: 3, TargetConcurrency: 2})
		synctest.Wait()
		if s := l.Stats(); len(q.started) != 5 || s.Running != 2 || s.Queued != 0 {
			t.Fatalf("Q1: a higher target started %d, %+v", len(q.started), s)
		}
	})
}

// TestSheddingIsTheLastResort has a free slot and a decision to shed all.
func TestSheddingIsTheLastResort(t *testing.T) {
	l := mustNew(t, Config{MaxQueue: 1, Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 1, ShedProbability: 1}})
	for range 100 {
		p, err := l.Acquire(context.Background(), Task{Priority: lowest})
		if err != nil {
			t.Fatal("Q2: ", err)
		}
		if e := p.Explain(); e.Grant != "slot_free" {
			t.Fatal(e)
		}
		p.Release()
	}
}

// TestTheQueueIsBounded submits more than fit.
func TestTheQueueIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, p := occupied(t, Config{MaxQueue: 3})
		q := newLine(t, l)
		for i := range 6 {
			q.join(named(i, 0))
			if n := l.Stats().Queued; n > 3 {
				t.Fatalf("Q3: %d wait", n)
			}
		}
		for _, name := range []string{"3", "4", "5"} {
			q.wantRejected(name, decision.QueueOverflow)
		}
		q.wantOrder(p, "0", "1", "2")
	})
}

// TestPriorityThenAge orders a queue that moves, and one priority of it that stands.
func TestPriorityThenAge(t *testing.T) {
	fill := func(q *line) {
		q.join(Task{Name: "b1", Priority: decision.Background})
		q.join(Task{Name: "h1", Priority: decision.High})
		q.join(Task{Name: "b2", Priority: decision.Background})
		q.join(Task{Name: "n1"})
		q.join(Task{Name: "h2", Priority: decision.High})
		q.join(Task{Name: "lowest", Priority: lowest})
		q.join(Task{Name: "c1", Priority: decision.Critical})
	}
	t.Run("moves", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			l, p := occupied(t, Config{})
			q := newLine(t, l)
			fill(q)
			sleep(20 * time.Millisecond)
			q.wantOrder(p, "c1", "h1", "h2", "n1", "b1", "b2", "lowest")
		})
	})
	t.Run("stands", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			l, p := occupied(t, Config{MaxQueue: 20, Initial: decisionState(1, 20*time.Millisecond)})
			q := newLine(t, l)
			q.join(Task{Name: "b0", Priority: decision.Background})
			sleep(time.Millisecond)
			fill(q)
			sleep(20 * time.Millisecond) // only b0 is older than that now
			q.wantOrder(p, "c1", "h1", "h2", "n1", "b2", "b1", "b0", "lowest")
		})
	})
	t.Run("another bound", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			l, p := occupied(t, Config{Initial: decisionState(1, time.Second)})
			q := newLine(t, l)
			q.join(named(1, 0))
			sleep(time.Second)
			q.join(named(2, 0))
			q.wantOrder(p, "1", "2")
		})
	})
}

// TestManyInFlight has many tasks in flight, again and again, and releases each of them twice, in both orders.
func TestManyInFlight(t *testing.T) {
	const n = 50
	l := mustNew(t, Config{Initial: fixed(n)})
	for range 20 {
		var ps []Permit
		for i := range n {
			p := must(l.TryAcquire(named(i, 0)))(t)
			ps = append(ps, p)
		}
		_, err := l.TryAcquire(Task{})
		wantReason(t, err, decision.NoSlot)
		for i, p := range ps {
			if e := p.Explain(); e.Task != named(i, 0) || e.InFlight != i+1 {
				t.Fatalf("Q6: %d is explained as %v", i, e)
			}
		}
		for i, p := range ps {
			if !p.Release() || p.Release() || ps[i/2].Release() {
				t.Fatal("Q6: each permit is released once")
			}
		}
	}
	if s := l.Stats(); s.Executed != 20*n || s.Running != 0 || s.Submitted != 20*(n+1) {
		t.Errorf("Q6: %+v", s)
	}
}

// TestNothingIsInterrupted runs a task through everything that could interrupt one.
func TestNothingIsInterrupted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}
		l := mustNew(t, Config{Initial: fixed(1)})
		ctx := context.WithValue(t.Context(), key{}, 1)
		got, err := Do(ctx, l, Task{Deadline: time.Now().Add(time.Millisecond)}, func(in context.Context) (int, error) {
			if in != ctx {
				t.Error("Q8: another context")
			}
			l.Apply(decision.ControlDecision{Seq: 2, ValidFor: time.Millisecond})
			time.Sleep(time.Second)
			l.Close()
			return 7, in.Err()
		})
		if got != 7 || err != nil {
			t.Fatal(got, err)
		}
		if s := l.Stats(); s.Executed != 1 || s.Running != 0 {
			t.Fatalf("Q8: %+v", s)
		}
	})
}

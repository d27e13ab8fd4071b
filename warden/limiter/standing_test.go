// SPDX-License-Identifier: Apache-2.0

// A queue that stands: from when on, in which order it is served, and who makes room when it is full.

package limiter

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// TestWhenAQueueStands keeps the order of arrival until the oldest has waited for longer than a burst would last, and turns it
// from then on.
func TestWhenAQueueStands(t *testing.T) {
	slow := decision.ControlDecision{Seq: 1, TargetConcurrency: 1, Expected: 3 * time.Second}
	for _, c := range []struct {
		name     string
		cfg      Config
		deadline time.Duration // of the oldest; 0: none
		wait     time.Duration
	}{
		{"nothing is known: 25 ms", Config{}, 0, 25 * time.Millisecond},
		{"or what a task is expected to take", Config{Initial: slow}, 0, 3 * time.Second},
		{"with a deadline as without", Config{}, time.Hour, 25 * time.Millisecond},
		{"as decided", Config{Initial: decisionState(1, 5*time.Second)}, 0, 5 * time.Second},
	} {
		for more, want := range map[time.Duration][]string{0: {"1", "2"}, 1: {"2", "1"}} {
			bubble(t, func(t *testing.T) {
				l, p := occupied(t, c.cfg)
				q := newLine(t, l)
				oldest := Task{Name: "1"}
				if c.deadline > 0 {
					oldest.Deadline = time.Now().Add(c.deadline)
				}
				q.join(oldest)
				q.join(Task{Name: "2"})
				sleep(c.wait + more)
				q.wantOrder(p, want...)
				if t.Failed() {
					t.Log(c.name, c.wait+more)
				}
			})
		}
	}
}

// TestClientsThatLeave sends twice what can be served by clients who leave after 250 ms, and say so only by leaving: nearly every
// slot goes to one who is still there when the work is done.
func TestClientsThatLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n, took, patience = 400, 10 * time.Millisecond, 250 * time.Millisecond
		l := mustNew(t, Config{MaxQueue: 1024, Initial: fixed(1)})
		answered, started := 0, 0
		done := make(chan bool, n)
		for range n {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				// A context whose deadline the limiter does not see: a client that leaves.
				leaves, leave := context.WithCancel(context.Background())
				stop := context.AfterFunc(ctx, leave)
				defer stop()
				p, err := l.Acquire(leaves, Task{})
				if err != nil {
					done <- false
					return
				}
				started++
				time.Sleep(took)
				p.Release()
				done <- ctx.Err() == nil
			}()
			time.Sleep(took / 2)
			synctest.Wait()
		}
		for range n {
			if <-done {
				answered++
			}
		}
		if answered < started*95/100 || started < n/2 {
			t.Errorf("Q4: %d of %d were answered in time, of %d started", answered, n, started)
		}
	})
}

// TestNobodyIsRejectedForWaiting: however long a queue stands, all of it that fits is kept, and served when the load falls.
func TestNobodyIsRejectedForWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, p := occupied(t, Config{MaxQueue: 20})
		q := newLine(t, l)
		for i := range 20 {
			q.join(named(i, decision.Normal))
			sleep(10 * time.Second)
		}
		if s := l.Stats(); s.Queued != 20 || s.Rejected != 0 {
			t.Errorf("Q11: %+v", s)
		}
		if got := q.drain(p); len(got) != 20 || got[0] != "19" {
			t.Errorf("Q11: started %v", got)
		}
	})
}

// TestAFullQueueThatStands: a newcomer takes the slot of the oldest of its priority, who can hardly be answered in time any more;
// in one that only is full, the newcomer is rejected, and so it is if the other priority is the one that stands.
func TestAFullQueueThatStands(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, p := occupied(t, Config{MaxQueue: 3})
		q := newLine(t, l)
		q.join(Task{Name: "high", Priority: decision.High})
		q.join(Task{Name: "old"})
		q.join(Task{Name: "older than new"})
		q.join(Task{Name: "too early"})
		q.wantRejected("too early", decision.QueueOverflow)
		sleep(26 * time.Millisecond)
		q.join(Task{Name: "background", Priority: decision.Background})
		q.wantRejected("background", decision.QueueOverflow)
		q.join(Task{Name: "new"})
		if r := q.wantRejected("old", decision.QueueOverflow); r.Waited != 26*time.Millisecond || r.QueueLen != 2 {
			t.Errorf("Q11: %v", r)
		}
		q.wantOrder(p, "high", "new", "older than new")
	})
}

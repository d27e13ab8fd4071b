// SPDX-License-Identifier: Apache-2.0

// A queue whose length changes while tasks wait.

package limiter_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// Whoever waits goes on waiting, and none is added until fewer wait than may; all start in the end.
func TestPropertyMaxQueueChanges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		changes := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 6).Draw(rt, "limits")
		arrivals := rapid.SliceOfN(rapid.IntRange(0, 4), len(changes), len(changes)).Draw(rt, "arrivals")
		released := rapid.SliceOfN(rapid.IntRange(0, 2), len(changes), len(changes)).Draw(rt, "released")
		synctest.Test(t, func(t *testing.T) {
			l, err := limiter.New(limiter.Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 1}})
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex // guards held
			var held []limiter.Permit
			var all sync.WaitGroup
			acquire := func() {
				p, err := l.Acquire(context.Background(), limiter.Task{})
				switch {
				case err == nil:
					mu.Lock()
					held = append(held, p)
					mu.Unlock()
				case !errors.Is(err, decision.ErrRejected):
					t.Error(err)
				}
			}
			end := func() bool {
				mu.Lock()
				defer mu.Unlock()
				if len(held) == 0 {
					return false
				}
				held[0].Release()
				held = held[1:]
				return true
			}
			for i, limit := range changes {
				before := l.Stats()
				if err := l.SetMaxQueue(limit); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if after := l.Stats(); after.Queued != before.Queued || after.Rejected != before.Rejected {
					t.Fatalf("Q3: a change to %d took someone out of the queue: %d, then %d", limit, before.Queued, after.Queued)
				}
				for range arrivals[i] {
					waiting := l.Stats().Queued
					all.Go(acquire)
					synctest.Wait()
					if after := l.Stats().Queued; after > max(limit, waiting) {
						t.Fatalf("Q3: %d wait, %d may, and %d did before", after, limit, waiting)
					}
				}
				for range released[i] {
					end()
					synctest.Wait()
				}
			}
			for end() {
				synctest.Wait()
			}
			all.Wait()
			if s := l.Stats(); s.Queued+s.Running != 0 || s.Executed+s.Rejected != s.Submitted {
				t.Fatalf("Q3: left behind: %+v", s.Tally)
			}
		})
	})
}

func TestMaxQueueBadInput(t *testing.T) {
	l, err := limiter.New(limiter.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{l.SetMaxQueue(-1), (*limiter.Limiter)(nil).SetMaxQueue(1), new(limiter.Limiter).SetMaxQueue(1)} {
		if !errors.Is(err, decision.ErrInvalid) {
			t.Error(err)
		}
	}
}

// Where more wait than may, a more important task waits in the place of another, and others are rejected.
func TestALowerMaxQueueAddsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := limiter.New(limiter.Config{MaxQueue: 3, Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 1}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		wait := func(p decision.Priority) {
			go func() {
				if p, err := l.Acquire(ctx, limiter.Task{Priority: p}); err == nil {
					<-ctx.Done()
					p.Release()
				}
			}()
			synctest.Wait()
		}
		for range 4 {
			wait(decision.Normal)
		}
		if err := l.SetMaxQueue(1); err != nil {
			t.Fatal(err)
		}
		wait(decision.High)
		wait(decision.Normal)
		s := l.Stats()
		if s.Queued != 3 || s.Of(decision.High).Queued != 1 || s.RejectedFor(decision.PriorityDrop) != 1 ||
			s.RejectedFor(decision.QueueOverflow) != 1 {
			t.Errorf("Q3: %d wait, %d of them high; %d dropped, %d found the queue full", s.Queued, s.Of(decision.High).Queued,
				s.RejectedFor(decision.PriorityDrop), s.RejectedFor(decision.QueueOverflow))
		}
	})
}

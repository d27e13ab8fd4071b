// SPDX-License-Identifier: Apache-2.0

// The counters (Q6), looked at while everything moves.

package limiter

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// TestPropertyCountersAtAnyInstant looks at a limiter while tasks start, wait, are shed, evicted, canceled and too late, while
// decisions change and while it closes: every look adds up, and no counter ever falls.
func TestPropertyCountersAtAnyInstant(t *testing.T) {
	for range 5 {
		l := mustNew(t, Config{MaxQueue: 6, StarvationEvery: 5, Initial: fixed(2)})
		stop := make(chan struct{})
		var all, watch sync.WaitGroup
		watch.Go(func() {
			last, looks := Stats{}, 0
			for ; ; looks++ {
				s := l.Stats()
				var sum Tally
				for _, c := range []Tally{s.Tally, s.Of(decision.Background), s.Of(decision.Normal), s.Of(decision.High),
					s.Of(decision.Critical)} {
					if c.Submitted != c.Executed+c.Rejected+c.Canceled+uint64(c.Queued)+uint64(c.Running) {
						t.Errorf("Q6: %+v does not add up", c)
					}
				}
				for i, c := range s.classes {
					sum = sum.plus(c)
					if sum.Queued += c.Queued; c.Submitted < last.classes[i].Submitted || c.Executed < last.classes[i].Executed {
						t.Errorf("Q6: class %d: %+v after %+v", i, c, last.classes[i])
					}
				}
				if sum != s.Tally {
					t.Errorf("Q6: the classes add up to %+v, not %+v", sum, s.Tally)
				}
				byReason := uint64(0)
				for _, r := range Reasons() {
					if byReason += s.RejectedFor(r); s.RejectedFor(r) < last.RejectedFor(r) {
						t.Errorf("Q6: rejected for %s: %d, and %d before", r, s.RejectedFor(r), last.RejectedFor(r))
					}
				}
				if byReason != s.Rejected+s.Canceled || s.Submitted < last.Submitted || s.Executed < last.Executed ||
					s.Rejected < last.Rejected || s.Canceled < last.Canceled {
					t.Errorf("Q6: %+v after %+v", s, last)
				}
				last = s
				select {
				case <-stop:
					t.Logf("%d looks, at last %+v", looks, s)
					return
				default:
				}
			}
		})
		for i := range 12 {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(11, uint64(i)))
				var a account
				for range rounds / 4 {
					a.spend(t, l, rng, 8)
				}
			})
		}
		all.Go(func() {
			rng := rand.New(rand.NewPCG(12, 12))
			for seq := uint64(2); seq < 300; seq++ {
				l.Apply(decision.ControlDecision{Seq: seq, TargetConcurrency: 1 + rng.IntN(4), ShedProbability: rng.Float64() / 2,
					Yields: rng.IntN(3)})
				time.Sleep(10 * time.Microsecond) // so that some load runs under each decision
			}
			l.Close()
		})
		all.Wait()
		close(stop)
		watch.Wait()
	}
}

// TestCloseWithManyWaiting looks while a thousand waiters leave at once.
func TestCloseWithManyWaiting(t *testing.T) {
	const n = 1000
	l, p := occupied(t, Config{MaxQueue: n})
	var all sync.WaitGroup
	for range n {
		all.Go(func() { _, _ = l.Acquire(context.Background(), Task{}) })
	}
	for l.Stats().Queued < n {
		time.Sleep(time.Millisecond) // the clock is real: a thousand goroutines are on their way
	}
	all.Go(l.Close)
	for rejected := uint64(0); rejected < n; {
		s := l.Stats()
		if s.Submitted != n+1 || s.Rejected < rejected || s.Rejected+uint64(s.Queued) != n {
			t.Fatalf("Q6: %+v", s)
		}
		rejected = s.Rejected
	}
	all.Wait()
	p.Release()
}

// TestRaceCopiesOfAnObservedPermit releases copies of permits from many goroutines while their slots go to other tasks: exactly
// one of them ends each task, and the observer is told of that task.
func TestRaceCopiesOfAnObservedPermit(t *testing.T) {
	seen := &recording{}
	l := mustNew(t, Config{Observer: seen, Initial: fixed(4)})
	const tasks = 500
	permits := make(chan Permit, 4*tasks)
	var wins, all sync.WaitGroup
	wins.Add(tasks)
	for range 4 {
		all.Go(func() {
			for p := range permits {
				_ = p.Explain()
				if p.Release() {
					wins.Done()
				}
			}
		})
	}
	for i := range tasks {
		var p Permit
		for err := decision.ErrRejected; err != nil; {
			p, err = l.TryAcquire(named(i, 0))
		}
		for range 4 {
			permits <- p
		}
	}
	close(permits)
	all.Wait()
	wins.Wait()
	executed := map[string]int{}
	for _, e := range seen.events {
		if e.Outcome == decision.Executed {
			executed[e.Task.Name]++
		}
	}
	for name, n := range executed {
		if n != 1 {
			t.Errorf("Q6: task %s ended %d times", name, n)
		}
	}
	if s := l.Stats(); len(executed) != tasks || s.Executed != tasks || s.Running != 0 {
		t.Errorf("Q6: %d tasks, %+v", len(executed), s)
	}
}

// Every priority counts as the highest of the four common ones that is not above it, or as the lowest.
func TestPropertyEveryPriorityHasAClass(t *testing.T) {
	for p := -128; p <= 127; p++ {
		want := decision.Background
		for _, c := range []decision.Priority{decision.Normal, decision.High, decision.Critical} {
			if int(c) <= p {
				want = c
			}
		}
		if got := decision.Priority(p).Class(); got != want {
			t.Errorf("Q6: %d counts as %s, want %s", p, got, want)
		}
		l := mustNew(t, Config{Initial: fixed(1)})
		permit := must(l.TryAcquire(Task{Priority: decision.Priority(p)}))(t)
		if s := l.Stats(); s.Of(want) != s.Tally || s.Running != 1 {
			t.Errorf("Q6: %d: %+v of %+v", p, s.Of(want), s)
		}
		permit.Release()
	}
}

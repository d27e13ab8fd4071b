// SPDX-License-Identifier: Apache-2.0

// The hidden queue: what waits for a core reaches the limiter before the work starts. On real goroutines and one core.

package limiter

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// oneCore gives Go one processor for the length of the test.
func oneCore(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// work has no scheduling point.
func work() uint64 {
	x := uint64(1)
	for range 20_000 {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// surface lets twenty tasks arrive while all of them are runnable and one core is free, the important one in the middle.
// It returns how many started before the important one, and how many of all came through the queue.
func surface(t *testing.T, yields int) (before, throughQueue int) {
	d := fixed(1)
	d.Yields, d.Burst = yields, time.Hour
	l := mustNew(t, Config{MaxQueue: 100, Initial: d})
	var order []decision.Grant // the slot is held while it is written
	var sink atomic.Uint64
	var wg sync.WaitGroup
	for i := range 20 {
		task := Task{Priority: decision.Background}
		if i == 10 {
			task.Priority = decision.Critical
		}
		wg.Go(func() {
			_, err := Do(context.Background(), l, task, func(context.Context) (int, error) {
				order = append(order, "")
				if task.Priority == decision.Critical {
					before = len(order) - 1
				}
				sink.Add(work())
				return 0, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, e := range l.Recent() {
		if e.Grant == "queue_oldest" {
			throughQueue++
		}
	}
	return before, throughQueue
}

// TestTheHiddenQueue is about many grants, of which some may meet something else that runs, more of them where the core is
// shared: with yields the important task is the second to start, and nearly all come through the queue. Without, the
// scheduler's order is all there is.
func TestTheHiddenQueue(t *testing.T) {
	oneCore(t)
	const runs = 60
	visible, hidden, queuedWith, queuedWithout := 0, 0, 0, 0
	for range runs {
		before, through := surface(t, 4)
		if queuedWith += through; before <= 1 {
			visible++
		}
		before, through = surface(t, 0)
		if queuedWithout += through; before > 1 {
			hidden++
		}
	}
	t.Logf("of %d: first or second with yields %d, later than that without %d; through the queue: %d with, %d without, of %d",
		runs, visible, hidden, queuedWith, queuedWithout, runs*20)
	if visible < runs*3/4 || queuedWith < runs*19*3/4 {
		t.Errorf("Q15: with yields, the important task was first or second in %d of %d runs; %d tasks came through the queue", visible,
			runs, queuedWith)
	}
	if hidden < runs*3/4 || queuedWithout > runs*19/4 {
		t.Errorf("Q15: without, the important task was later in %d of %d runs; %d tasks came through the queue: what is there to be surfaced?", hidden, runs, queuedWithout)
	}
}

// TestYieldsWhileOthersArrive counts the yields: one more than brought somebody, but no more than Yields; none for
// TryAcquire. A goroutine beside it that yields as well runs once for each; for the first few times, it is an arrival.
func TestYieldsWhileOthersArrive(t *testing.T) {
	oneCore(t)
	done, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct{ yields, arrivals, want int }{{0, 5, 0}, {1, 0, 1}, {1, 5, 1}, {3, 5, 3}, {8, 0, 1}, {8, 5, 6},
		{64, 4, 5}} {
		d := fixed(1)
		d.Yields = c.yields
		l := mustNew(t, Config{Initial: d})
		beside := func(ask func() (Permit, error)) int {
			var turns atomic.Int64
			var stop atomic.Bool
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for ; !stop.Load(); runtime.Gosched() {
					if int(turns.Add(1)) <= c.arrivals {
						_, _ = l.Acquire(done, Task{})
					}
				}
			}()
			p, err := ask()
			if err != nil {
				t.Error(err)
			}
			got := int(turns.Load())
			stop.Store(true)
			<-ended
			p.Release()
			return got
		}
		right, never := 0, 0
		for range 50 {
			if beside(func() (Permit, error) { return l.Acquire(context.Background(), Task{}) }) == c.want {
				right++
			}
			task := Task{}
			if right%2 == 0 {
				task.Deadline = time.Now().Add(time.Hour)
			}
			if beside(func() (Permit, error) { return l.TryAcquire(task) }) == 0 {
				never++
			}
		}
		// Every 61st turn of the scheduler is an odd one, and something else may run as well.
		if right < 35 || never < 45 {
			t.Errorf("Q15: Yields %d, %d arrive: %d of 50 were %d yields; %d of 50 TryAcquires did not yield", c.yields, c.arrivals, right,
				c.want, never)
		}
	}
}

// What tasks without a deadline are taken to wait: when it is known, for whom it counts, and who cannot make others go.

package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// leavers lets n tasks come, one a millisecond, and leave after that time.
func (q *line) leavers(n int, p Priority, after time.Duration) {
	for i := range n {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(after, cancel)
		q.joinCtx(ctx, Task{Name: fmt.Sprint("leaver ", i, " of ", time.Now().UnixNano()), Priority: p})
		sleep(time.Millisecond)
	}
	sleep(after)
}

// TestLearnedFromThoseWhoLeave: once sixteen have left at 200 ms, the next of their priority is taken to do so; nobody else is.
func TestLearnedFromThoseWhoLeave(t *testing.T) {
	const assumed = 215269482 * time.Nanosecond // the first age that is counted after 200 ms
	for left, patience := range map[int]time.Duration{15: 0, 16: assumed} {
		bubble(t, func(t *testing.T) {
			l, p := occupied(t, Config{Name: "api", MaxQueue: 100})
			q := newLine(t, l)
			q.leavers(left, Normal, 200*time.Millisecond)
			q.join(Task{Name: "another priority", Priority: High})
			q.join(Task{Name: "it said", Deadline: time.Now().Add(time.Hour)})
			q.join(Task{Name: "x"})
			sleep(10 * time.Second)
			if patience == 0 {
				q.wantOrder(p, "another priority", "x", "it said")
				return
			}
			r := q.wantRejected("x", PatienceExceeded)
			if r.Patience != patience || r.Waited != patience || !r.Deadline.IsZero() || r.Bound != BoundTarget || r.Cause != nil {
				t.Errorf("Q16: %+v", r)
			}
			const want = `rejected: patience_exceeded: task "x", priority normal, patience 215ms (assumed), waited 215ms; "api": 1 in flight, 2 queued, concurrency limit 1 reached; decision 1 (initial): target 1, shed 0`
			if r.String() != want {
				t.Errorf("Q16: %v\nwant %s", r, want)
			}
			q.wantOrder(p, "another priority", "it said")
		})
	}
}

// TestLeavesTimeForTheWork: a task is not started so late that it could not be done before those like it leave, and whoever
// leaves sooner than a burst and twice the work last teaches nothing.
func TestLeavesTimeForTheWork(t *testing.T) {
	const expected = 30 * time.Millisecond
	for shown, waits := range map[time.Duration]time.Duration{
		200 * time.Millisecond:                                   215269482 - expected + 1,
		decision.DefaultBurst + 2*expected:                       90509667 - expected + 1, // counted as of that age
		decision.DefaultBurst + 2*expected - 10*time.Millisecond: 0,
	} {
		bubble(t, func(t *testing.T) {
			l, p := occupied(t, Config{MaxQueue: 100, Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 1, Expected: expected}})
			q := newLine(t, l)
			q.leavers(20, Normal, shown)
			q.join(Task{Name: "x"})
			sleep(time.Second)
			if waits == 0 {
				q.wantOrder(p, "x")
				return
			}
			if r := q.wantRejected("x", PatienceExceeded); r.Waited != waits {
				t.Errorf("Q16: shown %v: it waited %v, want %v", shown, r.Waited, waits)
			}
			q.wantOrder(p)
		})
	}
}

// TestIsForgotten: what was seen counts half after two seconds, so seconds after the last has left nothing is known any more.
func TestIsForgotten(t *testing.T) {
	for after, forgotten := range map[time.Duration]bool{0: false, 10 * time.Second: true} {
		bubble(t, func(t *testing.T) {
			l, p := occupied(t, Config{MaxQueue: 100})
			q := newLine(t, l)
			q.leavers(100, Normal, 100*time.Millisecond)
			sleep(after)
			q.join(Task{Name: "x"})
			sleep(time.Hour)
			if _, rejected := q.rejected["x"]; rejected == forgotten {
				t.Errorf("Q16: after %v: rejected %v", after, q.rejected["x"])
			}
			q.drain(p)
		})
	}
}

// TestNobodyIsRejectedWhileASlotIsFree: whatever is known, a task that need not wait runs (Q2), and nothing is assumed of it.
func TestNobodyIsRejectedWhileASlotIsFree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, p := occupied(t, Config{MaxQueue: 100})
		q := newLine(t, l)
		q.leavers(20, Normal, 50*time.Millisecond)
		p.Release()
		sleep(time.Millisecond)
		q.join(Task{Name: "x"})
		if e := q.permits["x"].Explain(); e.Grant != SlotFree || e.Patience != 0 {
			t.Errorf("Q16: %+v", e)
		}
	})
}

// TestAnAttackerMakesNobodyGo floods a service that others ask for more than it can do: with requests that are given up at
// once, nineteen in twenty of all; or after 50 ms, four in five. Those who would wait ten seconds lose nothing but what the attacker's
// requests that start cost them.
func TestAnAttackerMakesNobodyGo(t *testing.T) {
	for _, attack := range []struct {
		requests int // for each of the others
		patience time.Duration
	}{{19, time.Millisecond}, {4, 50 * time.Millisecond}} {
		bubble(t, func(t *testing.T) {
			const n, took = 300, 10 * time.Millisecond
			l := mustNew(t, Config{MaxQueue: 1024, Initial: fixed(1)})
			var served, sentAway, left atomic.Int64
			var all sync.WaitGroup
			come := func(patience time.Duration) {
				all.Go(func() {
					ctx, leave := context.WithCancel(context.Background())
					defer leave()
					defer time.AfterFunc(patience, leave).Stop()
					var r *Rejection
					p, err := l.Acquire(ctx, Task{})
					switch {
					case err == nil:
						time.Sleep(took)
						p.Release()
						if patience > time.Second {
							served.Add(1)
						}
					case errors.As(err, &r) && r.Reason == Canceled:
						left.Add(1)
					default:
						sentAway.Add(1)
					}
				})
			}
			for i := range n {
				for range attack.requests {
					come(attack.patience)
				}
				come(10 * time.Second)
				if i%3 == 2 {
					time.Sleep(took)
				}
				synctest.Wait()
			}
			all.Wait()
			if served.Load() != n || sentAway.Load() != 0 || left.Load() < n {
				t.Errorf("Q16: %+v: served %d of %d, sent %d away, %d left", attack, served.Load(), n, sentAway.Load(), left.Load())
			}
		})
	}
}

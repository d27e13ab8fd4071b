// SPDX-License-Identifier: Apache-2.0

// Those who wait in a compartment and have said nothing of how long: in which order they are served, and when they are sent away.

package bulkhead

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// TestClientsThatLeave sends twice what a compartment can do, by clients who leave after 250 ms and say so only by leaving:
// nearly every slot goes to one who is still there when the work is done.
func TestClientsThatLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, took, patience = 400, 20 * time.Millisecond, 250 * time.Millisecond
		_, a := single(t, CompartmentConfig{Guaranteed: 2, MaxQueue: 1000})
		var started, answered atomic.Int64
		var clients sync.WaitGroup
		for range n {
			clients.Go(func() {
				ctx, leave := context.WithCancel(context.Background())
				defer leave()
				defer time.AfterFunc(patience, leave).Stop()
				_, _ = Do(ctx, a, func(ctx context.Context) (int, error) {
					started.Add(1)
					time.Sleep(took)
					if ctx.Err() == nil {
						answered.Add(1)
					}
					return 0, nil
				})
			})
			time.Sleep(took / 4)
		}
		clients.Wait()
		if answered.Load() < started.Load()*95/100 || started.Load() < n/2 {
			t.Errorf("Q4: %d of %d were answered in time, of %d started", answered.Load(), n, started.Load())
		}
	})
}

// TestWhatCallsUsuallyTake: calls of a second keep their order for a second, because a burst of them lasts so long.
func TestWhatCallsUsuallyTake(t *testing.T) {
	for wait, first := range map[time.Duration]string{time.Second: "a", time.Second + 1: "b"} {
		synctest.Test(t, func(t *testing.T) {
			_, c := single(t, CompartmentConfig{Guaranteed: 1, Max: 1, MaxQueue: 10})
			crew := &crew{t: t}
			run := crew.send(c, "usual")
			time.Sleep(time.Second)
			run.leave <- nil
			synctest.Wait()
			run = crew.send(c, "in the way")
			jobs := map[string]*job{"a": crew.send(c, "a"), "b": crew.send(c, "b")}
			time.Sleep(wait)
			run.leave <- nil
			synctest.Wait()
			if !jobs[first].started.Load() {
				t.Errorf("Q4: after %v %s did not start first", wait, first)
			}
			for range 2 {
				for _, j := range jobs {
					if j.started.Load() && !j.ended.Load() {
						j.leave <- nil
						synctest.Wait()
					}
				}
			}
		})
	}
}

// TestMaxWait: the decision's MaxWait bounds the wait of each call, also of one that came before it.
func TestMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, c := single(t, CompartmentConfig{Guaranteed: 1, Max: 1, MaxQueue: 100})
		crew := &crew{t: t}
		holder := crew.send(c, "holder")
		left := func(j *job, maxWait, waited time.Duration) {
			t.Helper()
			synctest.Wait()
			var r *decision.Rejection
			if !j.ended.Load() || !errors.As(j.err, &r) || r.Reason != decision.MaxWaitExceeded || r.MaxWait != maxWait || r.Waited != waited {
				t.Errorf("Q16: %v", j.err)
			}
		}
		early := crew.send(c, "early")
		time.Sleep(time.Minute)
		set.Apply(decision.ControlDecision{Seq: 1, TargetConcurrency: 1, MaxWait: time.Second})
		left(early, 5*time.Second, time.Minute)
		first := crew.send(c, "first")
		time.Sleep(600 * time.Millisecond)
		last := crew.send(c, "last")
		time.Sleep(time.Second)
		left(last, 625*time.Millisecond, 625*time.Millisecond)
		time.Sleep(5 * time.Second)
		left(first, 5*time.Second, 5*time.Second)
		holder.leave <- nil
		synctest.Wait()
	})
}

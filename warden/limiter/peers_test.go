// Bugs that others had, by the issue in which they were told, and that a limiter does not have.

package limiter

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// golang/go #37852: when the first waiter of a semaphore.Weighted was canceled, those behind it were not looked at, and waited beside slots that were free.
func TestPeer_XSyncFrontWaiterCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mustNew(t, Config{MaxQueue: 4, Initial: fixed(1)})
		p := must(l.Acquire(t.Context(), Task{}))(t)
		front, cancel := context.WithCancel(t.Context())
		ends := make(chan error, 1)
		go func() {
			_, err := l.Acquire(front, Task{Priority: Critical})
			ends <- err
		}()
		synctest.Wait()
		var behind atomic.Bool
		go func() {
			if p, err := l.Acquire(t.Context(), Task{}); err == nil {
				behind.Store(true)
				p.Release()
			}
		}()
		synctest.Wait()
		cancel()
		p.Release() // it goes to the first, which may be gone already
		wantReason(t, <-ends, Canceled)
		synctest.Wait()
		if s := l.Stats(); !behind.Load() || s.Queued != 0 {
			t.Errorf("who stood behind it waits on: %+v", s)
		}
	})
}

// Netflix/concurrency-limits #179: a LifoBlockingLimiter that granted a token at the instant of the waiter's timeout lost it, and in the end let nobody in any more.
func TestPeer_NetflixTokenLostAtTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mustNew(t, Config{MaxQueue: 1, Initial: fixed(1)})
		for i := range 300 {
			p, err := l.Acquire(t.Context(), Task{})
			if err != nil {
				t.Fatalf("a slot was lost: %v, %+v", err, l.Stats())
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				time.Sleep(time.Millisecond) // the instant of the other's deadline, or just before it
				p.Release()
				cancel()
			}()
			if p, err := l.Acquire(ctx, Task{Deadline: time.Now().Add(time.Millisecond + time.Duration(i%2))}); err == nil {
				p.Release()
			}
			synctest.Wait()
			if s := l.Stats(); s.Running != 0 || s.Queued != 0 {
				t.Fatalf("%+v", s)
			}
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

// What only shows under parallel calls.

package lease_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/lease"
)

// wholeRecords runs f, which fails if it meets a record that another goroutine is changing.
func wholeRecords(t *testing.T, f func()) {
	defer func() {
		if broken := recover(); broken != nil {
			t.Errorf("L6: a record was used outside of its lock: %v", broken)
		}
	}()
	f()
}

// Everything at once, for the race detector and the audit.
func TestAllCallsAtOnce(t *testing.T) {
	defer goleak.VerifyNone(t)
	m := open(t, lease.Config{MaxRetries: 1, MaxBacklog: 8})
	var offsets atomic.Int64
	var group sync.WaitGroup
	for w := range 4 {
		group.Go(func() {
			wholeRecords(t, func() {
				for i := range 3000 {
					domain := fmt.Sprint("d", (w*7+i)%40)
					_, _ = m.Offer(ctx, domain, offsets.Add(1)) // may be full
					a, err := m.AcquireNext(ctx, domain)
					if err != nil {
						t.Error(err)
					}
					if a.Status == lease.Acquired && i%5 > 0 {
						// Another worker may have reclaimed it below; that is what the token is for.
						if _, err := m.Succeed(ctx, domain, a.Lease.Token); err != nil &&
							!errors.Is(err, lease.ErrTokenMismatch) && !errors.Is(err, lease.ErrLeaseNotFound) {
							t.Error(err)
						}
					}
					switch i % 100 {
					case 10:
						for l, err := range m.Held(ctx) {
							if err != nil {
								t.Error(err)
							}
							if i%200 < 100 {
								_ = m.Release(ctx, l.Domain, l.Token) // or somebody was faster
							}
							if next, err := m.Reclaim(ctx, l.Domain, l.Token); err == nil {
								_, _ = m.Fail(ctx, l.Domain, next.Token) // or lost to a later reclaim
							}
						}
					case 20:
						for _, err := range m.Ready(ctx) {
							if err != nil {
								t.Error(err)
							}
						}
					case 30:
						if err := m.Compact(ctx, offsets.Load()-100); err != nil && !errors.Is(err, lease.ErrFloor) {
							t.Error(err)
						}
					case 40:
						inspect(t, m, domain)
					}
				}
			})
		})
	}
	group.Wait()
	noError(t, m.Audit())
}

// Two domains do not wait for each other: while a stripe is locked, another works.
func TestStripesWorkApart(t *testing.T) {
	m := open(t, lease.Config{})
	release := m.LockStripe("A")
	defer release()
	other := ""
	for i := 0; other == ""; i++ {
		if name := fmt.Sprint("d", i); !m.SameStripe("A", name) {
			other = name
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		held := acquire(t, m, other, 1)
		succeed(t, m, held, lease.Completion{Status: lease.NoBacklog})
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a call on another stripe waits")
	}
}

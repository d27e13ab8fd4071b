// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D1 and D3: the order of a domain's records, and how many are fetched; all in virtual time.

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// A failed record keeps its domain waiting, and comes first when it is its time.
func TestRetryKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := run(t, dispatch.Partition{Ledger: memory(t, 5), Source: fill("a", "a", "b", "a")}, dispatch.Config{
			Backoff: time.Second,
			Handler: func(_ context.Context, job dispatch.Job) error {
				if job.Record.Offset == 0 && job.Lease.RetryCount < 3 {
					return errors.New("not yet")
				}
				return nil
			},
		})
		time.Sleep(time.Minute)
		r.mustStop(t)
		same(t, "D1: a", r.of("a"), 0, 0, 0, 0, 1, 3)
		same(t, "b", r.of("b"), 2)
		for i, want := range []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 7 * time.Second, 7 * time.Second} {
			equal(t, fmt.Sprint("call ", i), r.times["a"][i].Sub(began), want)
		}
		equal(t, "retried", r.Stats().Retried, 3)
	})
}

// While nothing can finish, the source is asked for MaxBuffered records and no more, of one domain MaxPerDomain.
func TestFetchedWorkIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, domains := range []int{1, 3, 1000} {
			block := make(chan struct{})
			ledger := memory(t, 0)
			r := run(t, dispatch.Partition{Ledger: ledger, Source: spread(2000, domains)}, dispatch.Config{
				MaxInFlight: 2, MaxBuffered: 50, MaxPerDomain: 10,
				Handler: func(context.Context, dispatch.Job) error { <-block; return nil },
			})
			time.Sleep(time.Minute)
			s := r.Stats()
			equal(t, fmt.Sprint("D3: ", domains, " domains: buffered"), s.Buffered, min(50, 10*domains))
			equal(t, "D3: working", s.Working, min(2, domains))
			equal(t, "paused", s.Paused, domains > 3)
			if domains > 3 {
				equal(t, "next", r.Next(), 50)
			}
			live := 0
			for i := range domains {
				v, _ := ledger.Inspect(context.Background(), fmt.Sprint("k", i))
				if live += len(v.Backlog); v.Lease != nil {
					live++
				}
			}
			equal(t, "in the ledger", live, s.Working) // it hears of a record when it is its turn
			close(block)
			time.Sleep(time.Minute)
			r.mustStop(t)
			equal(t, "succeeded", r.Stats().Succeeded, 2000)
			equal(t, "behind", r.Behind(), 0)
		}
	})
}

// A ledger that has no room is back-pressure, not loss. Only somebody else's lease can fill it: what is behind that waits, and
// is done after it.
func TestFullBacklogLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, err := lease.NewMemory(lease.Config{MaxBacklog: 1})
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		seen := &events{also: func(e dispatch.Event) {
			// a late owner's, after the partition was taken: a lease, and all that may wait behind it
			if e.Kind == dispatch.Taken {
				if a, err := ledger.TryAcquire(ctx, "k1", -5); err != nil || a.Status != lease.Acquired {
					t.Errorf("D3: %+v, %v", a, err)
				}
				if _, err := ledger.Offer(ctx, "k1", -4); err != nil {
					t.Error(err)
				}
			}
		}}
		r := run(t, dispatch.Partition{Ledger: ledger, Source: spread(200, 3)}, dispatch.Config{
			Observer: seen, Grace: time.Second,
			Handler: func(context.Context, dispatch.Job) error { time.Sleep(time.Millisecond); return nil },
		})
		time.Sleep(time.Minute)
		r.mustStop(t)
		r.inTurn(t, 200, 3)
		equal(t, "D3: foreign", len(seen.of(dispatch.Foreign)), 1)
		equal(t, "given up, for want of their records", r.Stats().GaveUp, 2)
		equal(t, "floor", r.Stats().Floor, 200)
	})
}

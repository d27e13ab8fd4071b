// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds what a lease that was given back until its retry is worth: whoever finds it may take it, and nobody is fenced
// out for good by that.

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// A member that does not know yet that it has lost the partition takes a lease that its owner had given back until the retry,
// and leaves. The owner goes on with what it left.
func TestRestingLeaseTakenByLateOwner(t *testing.T) {
	for how, leave := range map[string]func(lease.Ledger, lease.Lease) error{
		"and gives it back": func(ledger lease.Ledger, l lease.Lease) error {
			return ledger.Release(context.Background(), l.Domain, l.Token)
		},
		"and does its work": func(ledger lease.Ledger, l lease.Lease) error {
			_, err := ledger.Succeed(context.Background(), l.Domain, l.Token)
			return err
		},
		"and dies": func(lease.Ledger, lease.Lease) error { return nil },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ledger, log, c := memory(t, 9), fill("k", "k"), newCalls()
				began := time.Now()
				r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{
					Backoff: 10 * time.Second, Grace: 20 * time.Second,
					Handler: func(_ context.Context, job dispatch.Job) error {
						defer c.enter(job)()
						if time.Since(began) < time.Second {
							return errors.New("later")
						}
						return nil
					},
				})
				time.Sleep(time.Second)
				v, err := ledger.Inspect(t.Context(), "k")
				if err != nil || v.Lease == nil || !v.Lease.Released {
					t.Fatalf("D5: resting: %+v, %v", v, err)
				}
				taken, err := ledger.Reclaim(t.Context(), "k", v.Lease.Token)
				if err == nil {
					err = leave(ledger, taken)
				}
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				equal(t, "fenced", r.Stats().Fenced, 0)
				equal(t, "floor", r.Stats().Floor, 2)
				r.mustStop(t)
				if n := len(c.of("k")); n > 3 {
					t.Errorf("D5: %d calls", n)
				}
			})
		})
	}
}

// The other way about: the partition has a new owner, and here nobody knows it yet. The new one's lease is left to it, whether
// it runs or rests.
func TestRestingLeaseOfNewOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, log, c := memory(t, 9), fill("k"), newCalls()
		r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{
			Backoff: 10 * time.Second, Grace: 20 * time.Second,
			Handler: func(_ context.Context, job dispatch.Job) error {
				defer c.enter(job)()
				return errors.New("later")
			},
		})
		time.Sleep(time.Second)
		v, err := ledger.Inspect(t.Context(), "k")
		if err != nil || v.Lease == nil {
			t.Fatal(v, err)
		}
		l := *v.Lease
		for range 7 { // the owner tries every 15 s, and gives the lease back in between
			if l, err = ledger.Reclaim(t.Context(), "k", l.Token); err == nil {
				_, err = ledger.Fail(t.Context(), "k", l.Token)
			}
			if err == nil {
				err = ledger.Release(t.Context(), "k", l.Token)
			}
			if err != nil {
				t.Error("D5: the owner: ", err)
				break
			}
			time.Sleep(15 * time.Second)
		}
		equal(t, "calls", len(c.of("k")), 1)
		r.mustStop(t)
	})
}

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

// resting runs over one key whose record fails for a second, and returns the lease that it has given back until the retry.
func resting(t *testing.T, ledger lease.Ledger) (*running, lease.Lease) {
	t.Helper()
	began := time.Now()
	r := run(t, dispatch.Partition{Ledger: ledger, Source: fill("k", "k")}, dispatch.Config{
		Backoff: 10 * time.Second, Grace: 20 * time.Second,
		Handler: func(context.Context, dispatch.Job) error {
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
	return r, *v.Lease
}

// A member that does not know yet that it has lost the partition takes a lease that its owner had given back until the retry,
// and leaves. The owner goes on with what it left.
func TestRestingLeaseTakenByLateOwner(t *testing.T) {
	for how := range leaving {
		bubble(t, how, func(t *testing.T) {
			ledger := memory(t, 9)
			r, held := resting(t, ledger)
			robs(t, how, ledger, held)
			time.Sleep(2 * time.Minute)
			equal(t, "fenced", r.Stats().Fenced, 0)
			equal(t, "floor", r.Stats().Floor, 2)
			r.mustStop(t)
			if n := len(r.of("k")); n > 3 {
				t.Errorf("D5: %d calls", n)
			}
		})
	}
}

// The other way about: the partition has a new owner, and here nobody knows it yet. The new one's lease is left to it, whether
// it runs or rests.
func TestRestingLeaseOfNewOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := memory(t, 9)
		r, l := resting(t, ledger)
		for range 7 { // the owner tries every 15 s, and gives the lease back in between
			var err error
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
		equal(t, "calls", len(r.of("k")), 1)
		r.mustStop(t)
	})
}

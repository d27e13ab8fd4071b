package dispatch_test

// This file holds what a lease that was given back until its retry is worth: whoever finds it may take it, and nobody is fenced out for good by that.

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// A member that does not know yet that it has lost the partition takes a lease that its owner had given back until the retry, and leaves. The
// owner goes on with what it left.
func TestD5_RestingLeaseTakenByLateOwner(t *testing.T) {
	for how, leave := range map[string]func(*lease.Memory, lease.Lease) error{
		"and gives it back": func(ledger *lease.Memory, l lease.Lease) error {
			return ledger.Release(context.Background(), l.Domain, l.Token)
		},
		"and does its work": func(ledger *lease.Memory, l lease.Lease) error {
			_, err := ledger.Succeed(context.Background(), l.Domain, l.Token)
			return err
		},
		"and dies": func(*lease.Memory, lease.Lease) error { return nil },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ledger, log, c := memory(t, 9), fill("k", "k"), newCalls()
				began := time.Now()
				r := run(t, dispatch.Config{Ledger: ledger, Source: log, Backoff: 10 * time.Second, Grace: 20 * time.Second, Handler: func(_ context.Context, job dispatch.Job) error {
					defer c.enter(job)()
					if time.Since(began) < time.Second {
						return errors.New("later")
					}
					return nil
				}})
				time.Sleep(time.Second)
				v, err := ledger.Inspect(t.Context(), "k")
				if err != nil || v.Lease == nil || !v.Lease.Released {
					t.Fatalf("resting: %+v, %v", v, err)
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
					t.Errorf("%d calls", n)
				}
			})
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file is handlers that end their lease themselves, as one does that commits it with its own transaction.

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// Whatever the handler says afterwards, its record is done, once, and its domain goes on.
func TestHandlerEndsItsLease(t *testing.T) {
	for name, ending := range map[string]func(ctx context.Context) error{
		"nil":       func(context.Context) error { return nil },
		"an error":  func(context.Context) error { return errLost },
		"permanent": func(context.Context) error { return dispatch.ErrPermanent },
		"later":     func(context.Context) error { return dispatch.Later(time.Second) },
		"a panic":   func(context.Context) error { panic("after the commit") },
		"too late": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, suspect := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					ledger, seen, c := memory(t, 3), &events{}, newCalls()
					log := fill("k", "k", "j")
					if suspect { // the first record ran when its process died
						if _, err := ledger.TryAcquire(t.Context(), "k", 0); err != nil {
							t.Fatal(err)
						}
					}
					r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{
						Observer: seen,
						Handler: func(ctx context.Context, job dispatch.Job) error {
							defer c.enter(job)()
							if job.Record.Offset > 0 {
								return nil
							}
							if _, err := job.Ledger.Succeed(context.WithoutCancel(ctx), job.Lease.Domain,
								job.Lease.Token); err != nil {
								t.Error(err)
							}
							return ending(ctx)
						},
					})
					time.Sleep(10 * time.Minute)
					r.mustStop(t)
					c.check(t)
					same(t, "k", c.of("k"), 0, 1)
					same(t, "j", c.of("j"), 2)
					s := r.Stats()
					equal(t, "floor", s.Floor, 3)
					equal(t, "succeeded or found done", s.Succeeded+s.Skipped, 3)
					equal(t, "given up", s.GaveUp, 0)
					equal(t, "fenced", len(seen.of(dispatch.Fenced)), 0)
				})
			}
		})
	}
}

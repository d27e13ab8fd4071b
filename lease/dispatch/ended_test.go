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
					ledger := memory(t, 3)
					if suspect { // the first record ran when its process died
						died(t, ledger, "k")
					}
					r := run(t, dispatch.Partition{Ledger: ledger, Source: fill("k", "k", "j")}, dispatch.Config{
						Handler: func(ctx context.Context, job dispatch.Job) error {
							if job.Record.Offset > 0 {
								return nil
							}
							if _, err := job.Ledger.Succeed(context.WithoutCancel(ctx), "k", job.Lease.Token); err != nil {
								t.Error(err)
							}
							return ending(ctx)
						},
					})
					time.Sleep(10 * time.Minute)
					r.mustStop(t)
					same(t, "k", r.of("k"), 0, 1)
					same(t, "j", r.of("j"), 2)
					s := r.Stats()
					equal(t, "floor", s.Floor, 3)
					equal(t, "succeeded or found done", s.Succeeded+s.Skipped, 3)
					equal(t, "given up", s.GaveUp, 0)
					equal(t, "fenced", len(r.seen.of(dispatch.Fenced)), 0)
				})
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds the floor (D2) where nothing but a number stands for a record: while it is put off and its domain has nothing
// else, and below what was committed.

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

func TestFloorWaitsForWhatIsPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(memory(t, 0), fill("k", "k", "x", "k", "y"))
		fetched := 0
		p.fault = func(call, _ string) (before, after error) {
			if call == "Fetch" {
				if fetched++; fetched > 1 {
					return errLost, nil // what is put off cannot be read again for now
				}
			}
			return nil, nil
		}
		r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{MaxPerDomain: 1, CommitEvery: time.Millisecond})
		time.Sleep(time.Second)
		same(t, "k", r.of("k"), 0)
		s := r.Stats()
		equal(t, "behind", r.Behind(), 1)
		equal(t, "next", r.Next(), 5)
		equal(t, "buffered", s.Buffered, 0)
		equal(t, "floor", s.Floor, 1)
		equal(t, "committed", s.Committed, 1)
		p.fails(nil)
		time.Sleep(time.Minute)
		same(t, "k", r.of("k"), 0, 1, 3)
		equal(t, "committed", r.Stats().Committed, 5)
		r.mustStop(t)
	})
}

// What the ledger has below the committed offset is read as well: somebody has moved the offset by hand.
func TestLedgerHasWorkBelowTheCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, ledger, ctx := fill("a", "k", "b", "c"), memory(t, 1), context.Background()
		if _, err := ledger.Offer(ctx, "k", 1); err != nil {
			t.Fatal(err)
		}
		if err := log.Commit(ctx, 3); err != nil {
			t.Fatal(err)
		}
		r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{})
		time.Sleep(time.Minute)
		r.mustStop(t)
		same(t, "D2: k", r.of("k"), 1)
		equal(t, "floor", r.Stats().Floor, 4)
	})
}

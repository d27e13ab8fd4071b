// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// The contract's suite runs on a server of its own.

import (
	"context"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/model"
	"github.com/stopbank/stopbank/lease/leasenats"
	"github.com/stopbank/stopbank/lease/leasetest"
)

// Many ledgers share one bucket, each under a name of its own and with several processes. The random runs are fewer than the suite's hundred unless
// STOPBANK_THOROUGH is set.
func TestConformance(t *testing.T) {
	if !thorough() {
		set(t, "rapid.checks", "25")
	}
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	var ledgers atomic.Int64
	leasetest.Run(t, func(t testing.TB, cfg lease.Config) lease.Ledger {
		store := openStore(t, leasenats.WithTimeout(leasenats.StoreConfig{Conn: nc, Bucket: "suite",
			Name: fmt.Sprintf("n%d", ledgers.Add(1))}, time.Minute))
		return model.Several(func() lease.Ledger { return open(t, leasenats.ListAgain(store, 2), cfg) })
	})
}

// The ledgers that are written per window, through one claim.
func TestConformanceOfJournals(t *testing.T) {
	if !thorough() {
		set(t, "rapid.checks", "25")
	}
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	var ledgers atomic.Int64
	leasetest.Run(t, func(t testing.TB, cfg lease.Config) lease.Ledger {
		l := must(leasenats.OpenJournal(t.Context(), leasenats.StoreConfig{Conn: nc, Bucket: "suite"},
			fmt.Sprintf("n%d", ledgers.Add(1)), time.Minute, cfg))(t)
		t.Cleanup(func() { noError(t, l.Close(context.Background())) })
		return l
	})
}

// set gives a flag another value for the length of a test, unless the command line gave it one.
func set(t *testing.T, name, value string) {
	t.Helper()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if given {
		return
	}
	before := flag.Lookup(name).Value.String()
	noError(t, flag.Set(name, value))
	t.Cleanup(func() { _ = flag.Set(name, before) })
}

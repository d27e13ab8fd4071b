// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// The contract's suite runs on a server of its own.

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/model"
	"github.com/stopbank/stopbank/lease/leasenats"
	"github.com/stopbank/stopbank/lease/leasetest"
)

// Many ledgers share one bucket, each under a name of its own and with several processes.
func TestConformance(t *testing.T) {
	fewer(t)
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
	fewer(t)
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	var ledgers atomic.Int64
	leasetest.Run(t, func(t testing.TB, cfg lease.Config) lease.Ledger {
		l := must(leasenats.OpenJournal(t.Context(), leasenats.StoreConfig{Conn: nc, Bucket: "suite"},
			fmt.Sprintf("n%d", ledgers.Add(1)), time.Minute, cfg))(t)
		t.Cleanup(func() { noError(t, l.Close(context.Background())) })
		return l
	})
}

// fewer leaves a quarter of the random runs for the length of a test, unless STOPBANK_THOROUGH is set or the command line says how many.
func fewer(t *testing.T) {
	t.Helper()
	checks := flag.Lookup("rapid.checks").Value
	given := thorough()
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if given {
		return
	}
	before := checks.String()
	noError(t, checks.Set(fmt.Sprint(max(1, must(strconv.Atoi(before))(t)/4))))
	t.Cleanup(func() { _ = checks.Set(before) })
}

package lease_test

// This file runs the contract of lease.Ledger from outside, as the author of an engine does.

import (
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/leasetest"
)

func TestLedger(t *testing.T) {
	leasetest.Run(t, func(t testing.TB, cfg lease.Config) lease.Ledger {
		ledger, err := lease.NewMemory(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return ledger
	})
}

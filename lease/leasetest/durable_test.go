package leasetest_test

// This file runs the suite on the ledger over a store, the store being in memory.

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasetest"
)

func TestDurable(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	leasetest.Run(t, func(t testing.TB, cfg lease.Config) lease.Ledger {
		l, err := durable.New(durable.Config{
			Store: &durable.MemStore{}, MaxRetries: cfg.MaxRetries, MaxBacklog: cfg.MaxBacklog, Observer: cfg.Observer, MaxCached: 2,
		})
		if err != nil {
			t.Fatal(err)
		}
		return l
	})
}

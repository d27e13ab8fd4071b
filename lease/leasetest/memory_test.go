package leasetest_test

// This file runs the suite on the ledger in memory.

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/leasetest"
)

func openMemory(t testing.TB, cfg lease.Config) lease.Ledger {
	m, err := lease.NewMemory(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMemory(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent()) // a fault that never lets go of a lock has left its caller behind
	leasetest.Run(t, openMemory)
}

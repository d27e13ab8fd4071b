// SPDX-License-Identifier: Apache-2.0

// The store of the example, held to the contract as any other.

package durable_test

import (
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasetest"
)

func TestConformanceOfTheExample(t *testing.T) {
	leasetest.Run(t, func(t testing.TB, cfg lease.Config) lease.Ledger {
		store := serviceStore{service: &service{values: map[string]value{}}, prefix: t.Name() + "/"}
		ledger, err := durable.New(durable.Config{
			Store: store, MaxRetries: cfg.MaxRetries, MaxBacklog: cfg.MaxBacklog, Observer: cfg.Observer,
		})
		if err != nil {
			t.Fatal(err)
		}
		return ledger
	})
}

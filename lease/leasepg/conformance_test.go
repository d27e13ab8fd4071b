// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file runs the contract's own suite on PostgreSQL.

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/model"
	"github.com/stopbank/stopbank/lease/leasepg"
	"github.com/stopbank/stopbank/lease/leasetest"
)

// Ledgers of several processes, on one store each.
func TestConformance(t *testing.T) {
	pool := migrated(t, 8)
	leasetest.Run(t, func(t testing.TB, cfg lease.Config) lease.Ledger {
		store := open(t, pool)
		return model.Several(func() lease.Ledger {
			return must(durable.New(durable.Config{Store: store, MaxRetries: cfg.MaxRetries, MaxBacklog: cfg.MaxBacklog, Observer: cfg.Observer}))(t)
		})
	})
}

// The ledgers that are written per window, through one claim.
func TestConformanceOfJournals(t *testing.T) {
	pool := migrated(t, 8)
	leasetest.Run(t, func(t testing.TB, cfg lease.Config) lease.Ledger {
		l := must(leasepg.OpenJournal(t.Context(), pool, fmt.Sprintf("%s/%d", t.Name(), ledgers.Add(1)), time.Minute, cfg))(t)
		t.Cleanup(func() { noError(t, l.Close(context.Background())) })
		return l
	})
}

// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file runs the contract's own suite on PostgreSQL.

import (
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasetest"
)

func TestConformance(t *testing.T) {
	pool := migrated(t, 8)
	leasetest.Run(t, func(t testing.TB, cfg lease.Config) lease.Ledger {
		return must(durable.New(durable.Config{Store: open(t, pool), MaxRetries: cfg.MaxRetries, MaxBacklog: cfg.MaxBacklog,
			Observer: cfg.Observer}))(t)
	})
}

// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file lets two owners of a partition of an outbox overlap (D8), with ledgers in the same database.

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasepg"
)

func TestOwnersOverlap(t *testing.T) {
	ownertest.Overlap(t, func(t testing.TB) ownertest.Shared { return shared(t, migrated(t, 8)) })
}

// shared is a partition of an outbox that two owners have opened.
func shared(t testing.TB, pool *pgxpool.Pool) ownertest.Shared {
	t.Helper()
	o := outbox(t, pool, 1)
	name := o.Partitions()[0]
	opens := func() dispatch.Partition {
		store := must(leasepg.OpenStore(t.Context(), leasepg.StoreConfig{Pool: pool, Name: name}))(t)
		ledger := must(durable.New(durable.Config{Store: store, MaxRetries: 100}))(t)
		return must(o.Open(t.Context(), name, ledger))(t)
	}
	return ownertest.Shared{First: opens(), Second: opens(), Append: func(domain string, payload []byte) {
		put(t, pool, o, dispatch.Record{Domain: domain, Payload: payload})
	}}
}

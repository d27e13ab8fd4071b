package leasepg_test

// This file lets two owners of a partition of an outbox overlap (D8), with ledgers in the same database.

import (
	"testing"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasepg"
	"github.com/stopbank/stopbank/lease/leasetest/ownertest"
)

func TestOwnersOverlap(t *testing.T) {
	pool := migrated(t, 8)
	ownertest.Overlap(t, func(t testing.TB) ownertest.Shared {
		o := outbox(t, pool, 1)
		name := o.Partitions()[0]
		opens := func() dispatch.Partition {
			store := must(leasepg.New(t.Context(), leasepg.Config{Pool: pool, Ledger: name}))(t)
			ledger := must(durable.New(durable.Config{Store: store, MaxRetries: 100}))(t)
			return must(o.Open(t.Context(), name, ledger))(t)
		}
		return ownertest.Shared{First: opens(), Second: opens(), Append: func(domain string, payload []byte) {
			put(t, pool, o, dispatch.Record{Domain: domain, Payload: payload})
		}}
	})
}

package leasenats_test

// This file lets two owners of a stream overlap (D8), with positions and ledgers in one bucket.

import (
	"testing"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasenats"
	"github.com/stopbank/stopbank/lease/leasetest/ownertest"
)

func TestOwnersOverlap(t *testing.T) {
	ownertest.Overlap(t, func(t testing.TB) ownertest.Shared {
		nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
		js := orders(t, nc, 0, 1)
		opens := func() dispatch.Partition {
			store := must(leasenats.Open(ctx, leasenats.Config{Conn: nc, Bucket: "leases"}))(t)
			ledger := must(durable.New(durable.Config{Store: store, MaxRetries: 100}))(t)
			return dispatch.Partition{Source: source(t, nc, nil), Ledger: ledger}
		}
		return ownertest.Shared{First: opens(), Second: opens(), Append: func(domain string, payload []byte) {
			must(js.Publish(ctx, "orders."+domain, payload))(t)
		}}
	})
}

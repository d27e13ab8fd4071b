// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// Two owners of a stream overlap (D8), with positions and ledgers in one bucket.

import (
	"strings"
	"testing"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasenats"
)

func TestOwnersOverlap(t *testing.T) { ownertest.Overlap(t, shared) }

// shared is a stream that two owners have opened.
func shared(t testing.TB) ownertest.Shared {
	t.Helper()
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	js := orders(t, nc, 0, 1)
	opens := func() dispatch.Partition {
		store := must(leasenats.OpenStore(ctx, leasenats.StoreConfig{Conn: nc, Bucket: "leases"}))(t)
		ledger := must(durable.New(durable.Config{Store: store, MaxRetries: 100}))(t)
		domain := func(r dispatch.Record) string { return strings.TrimPrefix(r.Domain, "orders.") }
		return dispatch.Partition{Source: source(t, nc, func(cfg *leasenats.SourceConfig) { cfg.Domain = domain }), Ledger: ledger}
	}
	return ownertest.Shared{First: opens(), Second: opens(), Append: func(domain string, payload []byte) {
		must(js.Publish(ctx, "orders."+domain, payload))(t)
	}}
}

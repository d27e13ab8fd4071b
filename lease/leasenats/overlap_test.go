package leasenats_test

// This file lets two owners of a stream overlap (D8), with positions and ledgers in one bucket, and gives them bad input.

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasenats"
)

func TestOwnersOverlap(t *testing.T) { ownertest.Overlap(t, shared) }

func TestBadInput(t *testing.T) { ownertest.BadInput(t, shared) }

// shared is a stream that two owners have opened.
func shared(t testing.TB) ownertest.Shared {
	t.Helper()
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	js := orders(t, nc, 0, 1)
	opens := func() dispatch.Partition {
		store := must(leasenats.Open(ctx, leasenats.Config{Conn: nc, Bucket: "leases"}))(t)
		ledger := must(durable.New(durable.Config{Store: store, MaxRetries: 100}))(t)
		domain := func(m jetstream.Msg) string { return strings.TrimPrefix(m.Subject(), "orders.") }
		return dispatch.Partition{Source: source(t, nc, func(cfg *leasenats.SourceConfig) { cfg.Domain = domain }), Ledger: ledger}
	}
	return ownertest.Shared{First: opens(), Second: opens(), Append: func(domain string, payload []byte) {
		must(js.Publish(ctx, "orders."+domain, payload))(t)
	}}
}

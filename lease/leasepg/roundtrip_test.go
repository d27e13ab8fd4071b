// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file counts what a call costs: statements, and nothing beside them.

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasepg"
)

// tracer counts what pgx sends; each is a round trip.
type tracer struct{ queries, prepares atomic.Int64 }

func (c *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.queries.Add(1)
	return ctx
}

func (*tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *tracer) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	c.prepares.Add(1)
	return ctx
}

func (*tracer) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}

func TestOneRoundTrip(t *testing.T) {
	migrated(t, 1)
	cfg := must(pgxpool.ParseConfig(server.URL()))(t)
	sent := &tracer{}
	cfg.MaxConns, cfg.ConnConfig.Tracer = 1, sent
	pool := must(pgxpool.NewWithConfig(t.Context(), cfg))(t)
	t.Cleanup(pool.Close)
	s := must(leasepg.OpenStore(t.Context(), leasepg.StoreConfig{Pool: pool, Name: t.Name()}))(t)
	ledger := must(durable.New(durable.Config{Store: s, MaxRetries: 100}))(t)
	cycle := func(offset int64) {
		t.Helper()
		a, err := ledger.TryAcquire(t.Context(), "A", offset)
		if err != nil || a.Status != lease.Acquired {
			t.Fatalf("%+v, %v", a, err)
		}
		for _, call := range []func() error{
			func() error { _, err := ledger.Offer(t.Context(), "A", offset+1); return err },
			func() error { _, err := ledger.Fail(t.Context(), "A", a.Lease.Token); return err },
			func() error { a.Lease, err = ledger.Reclaim(t.Context(), "A", a.Lease.Token); return err },
			func() error { _, err := ledger.Succeed(t.Context(), "A", a.Lease.Token); return err },
			func() error { a, err = ledger.AcquireNext(t.Context(), "A"); return err },
			func() error { _, err := ledger.Succeed(t.Context(), "A", a.Lease.Token); return err },
		} {
			noError(t, call())
		}
	}
	cycle(0) // statements are prepared, the domain is known
	sent.queries.Store(0)
	sent.prepares.Store(0)
	const cycles = 5
	for i := range int64(cycles) {
		cycle(10 + 2*i)
	}
	if q, p := sent.queries.Load(), sent.prepares.Load(); q != 7*cycles || p != 0 {
		t.Errorf("%d calls that change something sent %d statements and prepared %d", 7*cycles, q, p)
	}
}

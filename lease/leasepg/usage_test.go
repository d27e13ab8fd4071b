package leasepg_test

// This file is the way from a URL to a ledger, as the documentation shows it.

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasepg"
)

func openOrders(ctx context.Context, pool *pgxpool.Pool) (*durable.Ledger, error) {
	if err := leasepg.Migrate(ctx, pool); err != nil { // or in a deployment step of its own
		return nil, err
	}
	store, err := leasepg.New(ctx, leasepg.Config{Pool: pool, Ledger: "orders/3"})
	if err != nil {
		return nil, err
	}
	return durable.New(durable.Config{Store: store, MaxRetries: 5})
}

func TestUsage(t *testing.T) {
	pool := fresh(t, 2)
	first, err := openOrders(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	held, err := first.TryAcquire(t.Context(), "customer 7", 41)
	if err != nil || held.Status != lease.Acquired {
		t.Fatalf("%+v, %v", held, err)
	}
	second, err := openOrders(t.Context(), pool) // another process, or this one after a restart
	if err != nil {
		t.Fatal(err)
	}
	if a, err := second.TryAcquire(t.Context(), "customer 7", 41); err != nil || a.Status != lease.AlreadyAcquired || a.Lease != held.Lease {
		t.Fatalf("%+v, %v", a, err)
	}
}

package scratch_test

// This file takes a lease in PostgreSQL from outside, and ends it. A release needs a server's programs.

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasepg"
	"github.com/stopbank/stopbank/lease/leasepg/pgtest"
)

func TestLedger(t *testing.T) {
	ctx := t.Context()
	server, err := pgtest.Open(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}()
	url, err := server.Database(ctx)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := leasepg.Migrate(ctx, pool); err != nil {
		t.Fatal(err)
	}
	store, err := leasepg.OpenStore(ctx, leasepg.StoreConfig{Pool: pool, Name: "orders/0"})
	if err != nil {
		t.Fatal(err)
	}
	ledger, err := durable.New(durable.Config{Store: store, MaxRetries: lease.DefaultRetries})
	if err != nil {
		t.Fatal(err)
	}
	held, err := ledger.TryAcquire(ctx, "customer-7", 42)
	if err != nil || held.Status != lease.Acquired {
		t.Fatalf("TryAcquire: %v, %v", held.Status, err)
	}
	if _, err := ledger.Succeed(ctx, "customer-7", held.Lease.Token); err != nil {
		t.Fatal(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file is the way from a URL to a ledger, as the documentation shows it.

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasepg"
)

func openOrders(ctx context.Context, pool *pgxpool.Pool) (lease.Ledger, error) {
	if err := leasepg.Migrate(ctx, pool); err != nil { // or in a deployment step of its own
		return nil, err
	}
	store, err := leasepg.OpenStore(ctx, leasepg.StoreConfig{Pool: pool, Name: "orders/3"})
	if err != nil {
		return nil, err
	}
	return durable.New(durable.Config{Store: store, MaxRetries: 5})
}

func workOrders(ctx context.Context, url string, pool *pgxpool.Pool, source func(string) dispatch.Source, handle dispatch.Handler,
	bury letters) error {
	conn, err := pgx.ParseConfig(url) // the server's own address, not a pooler's
	if err != nil {
		return err
	}
	group, err := leasepg.OpenGroup(ctx, leasepg.GroupConfig{
		Conn: conn, Group: "orders", Names: []string{"orders/0", "orders/1", "orders/2"},
		Open: func(ctx context.Context, partition string) (dispatch.Partition, error) {
			store, err := leasepg.OpenStore(ctx, leasepg.StoreConfig{Pool: pool, Name: partition})
			if err != nil {
				return dispatch.Partition{}, err
			}
			ledger, err := durable.New(durable.Config{Store: store, MaxRetries: 5})
			return dispatch.Partition{Source: source(partition), Ledger: ledger}, err
		},
	})
	if err != nil {
		return err
	}
	consumer, err := dispatch.NewConsumer(group, dispatch.Config{Handler: handle, DeadLetter: bury})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

type letters = func(context.Context, dispatch.DeadLetter) error

// Two replicas work three partitions off, and one of them leaves.
func TestUsageOfOwnership(t *testing.T) {
	pool := fresh(t, 4)
	noError(t, leasepg.Migrate(t.Context(), pool))
	logs := map[string]*dispatch.Log{}
	for i := range 3 {
		log := new(dispatch.Log)
		for n := range 40 {
			log.Append(fmt.Sprint("customer ", n%4), nil)
		}
		logs[fmt.Sprint("orders/", i)] = log
	}
	var done atomic.Int64
	all := make(chan struct{})
	start := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- workOrders(ctx, pool.Config().ConnString(), pool, func(partition string) dispatch.Source { return logs[partition] },
				func(context.Context, dispatch.Job) error {
					if done.Add(1) == 120 {
						close(all)
					}
					return nil
				}, func(_ context.Context, l dispatch.DeadLetter) error { return l.Err })
		}()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	first := start()
	second := start()
	first()
	<-all
	second()
	if n := done.Load(); n != 120 {
		t.Errorf("%d records handled, want 120", n)
	}
}

func TestUsage(t *testing.T) {
	pool := fresh(t, 2)
	first := must(openOrders(t.Context(), pool))(t)
	held, err := first.TryAcquire(t.Context(), "customer 7", 41)
	if err != nil || held.Status != lease.Acquired {
		t.Fatalf("%+v, %v", held, err)
	}
	second := must(openOrders(t.Context(), pool))(t) // another process, or this one after a restart
	if a, err := second.TryAcquire(t.Context(), "customer 7", 41); err != nil || a.Status != lease.AlreadyAcquired ||
		a.Lease != held.Lease {
		t.Fatalf("%+v, %v", a, err)
	}
}

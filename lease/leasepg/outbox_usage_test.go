// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file is the program of docs/outbox.md: orders that are placed and invoiced, each once, in the database.

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasepg"
)

func openOrderOutbox(ctx context.Context, pool *pgxpool.Pool) (*leasepg.Outbox, error) {
	if err := leasepg.Migrate(ctx, pool); err != nil { // or in a deployment step of its own
		return nil, err
	}
	return leasepg.OpenOutbox(ctx, leasepg.OutboxConfig{Pool: pool, Name: "orders", Partitions: 8, Notify: true})
}

func placeOrder(ctx context.Context, pool *pgxpool.Pool, outbox *leasepg.Outbox, customer, items string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (customer, items) VALUES ($1, $2)", customer, items); err != nil {
			return err
		}
		return outbox.Enqueue(ctx, tx, dispatch.Record{Domain: customer, Payload: []byte(items)})
	})
}

func writeInvoices(pool *pgxpool.Pool) dispatch.Handler {
	return func(ctx context.Context, job dispatch.Job) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO invoices (customer, items) VALUES ($1, $2)", job.Record.Domain,
				string(job.Record.Payload)); err != nil {
				return err
			}
			return leasepg.SucceedTx(ctx, tx, job.Ledger, job.Lease) // the last statement before the commit
		})
	}
}

func workOrdersOff(ctx context.Context, url string, pool *pgxpool.Pool, outbox *leasepg.Outbox, letters deadletter.Store) error {
	conn, err := pgx.ParseConfig(url) // the server's own address, not a pooler's
	if err != nil {
		return err
	}
	group, err := leasepg.OpenGroup(ctx, leasepg.GroupConfig{
		Conn: conn, Group: "invoices", Outbox: outbox, Ledger: lease.Config{MaxRetries: lease.DefaultRetries},
	})
	if err != nil {
		return err
	}
	consumer, err := dispatch.NewConsumer(group, dispatch.Config{Handler: writeInvoices(pool), DeadLetter: deadletter.Keep(letters)})
	if err != nil {
		return err
	}
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() { _ = outbox.Listen(ctx, conn) }) // without it, records wait for the next poll
	return consumer.Run(ctx)
}

func openOrderLetters(ctx context.Context, pool *pgxpool.Pool, outbox *leasepg.Outbox) (deadletter.Store, error) {
	return leasepg.OpenLetters(ctx, leasepg.LettersConfig{
		Pool: pool,
		Append: func(ctx context.Context, tx pgx.Tx, _ string, r dispatch.Record) error {
			return outbox.Enqueue(ctx, tx, r) // the key's partition is that of the outbox
		},
	})
}

func TestUsageOfOutbox(t *testing.T) {
	pool := fresh(t, 8)
	execute(t, pool, "CREATE TABLE orders (id bigserial, customer text, items text)")
	execute(t, pool, "CREATE TABLE invoices (id bigserial, customer text, items text)")
	outbox := must(openOrderOutbox(t.Context(), pool))(t)
	letters := must(openOrderLetters(t.Context(), pool, outbox))(t)
	ctx, cancel := context.WithCancel(t.Context())
	var replicas, customers sync.WaitGroup
	for range 2 {
		replicas.Go(func() {
			if err := workOrdersOff(ctx, pool.Config().ConnString(), pool, outbox, letters); err != nil {
				t.Error(err)
			}
		})
	}
	for c := range 6 {
		customers.Go(func() {
			for i := range 10 {
				if err := placeOrder(t.Context(), pool, outbox, fmt.Sprint("customer ", c), fmt.Sprint("order ", i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	customers.Wait()
	// One more that was given up, and is replayed.
	execute(t, pool, "INSERT INTO orders (customer, items) VALUES ('customer 6', 'order 0')")
	dead := dispatch.DeadLetter{Partition: outbox.Partitions()[0],
		Record: dispatch.Record{Domain: "customer 6", Offset: 1, Payload: []byte("order 0")}}
	if err := deadletter.Keep(letters)(t.Context(), dead); err != nil {
		t.Error(err)
	}
	if report, err := deadletter.ReplayAll(t.Context(), letters, deadletter.Filter{}); err != nil || report.Replayed != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	for ask(t, pool, "SELECT count(*) FROM invoices") != "61" && !t.Failed() {
		time.Sleep(5 * time.Millisecond) // nothing tells
	}
	cancel()
	replicas.Wait()
	const differences = `SELECT count(*) FROM (SELECT customer, items, row_number() OVER (PARTITION BY customer ORDER BY id) FROM orders) o
		FULL JOIN (SELECT customer, items, row_number() OVER (PARTITION BY customer ORDER BY id) FROM invoices) i USING (customer, row_number) WHERE o.items IS DISTINCT FROM i.items`
	if n := ask(t, pool, differences); n != "0" {
		t.Errorf("%s orders without their invoice in their place", n)
	}
}

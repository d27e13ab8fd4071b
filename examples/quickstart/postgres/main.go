// Postgres processes the orders of an outbox table: in order per customer, customers in parallel, failed orders again. The
// handler's row and the end of its record are one transaction.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasepg"
)

const orders = 20 // from 4 customers

func main() {
	url := flag.String("url", "postgres://postgres:secret@127.0.0.1:5432/postgres", "URL of a PostgreSQL database")
	flag.Parse()
	pool, err := pgxpool.New(context.Background(), *url)
	if err != nil {
		log.Fatal(err)
	}
	if err := run(pool); err != nil {
		log.Fatal(err)
	}
}

func run(pool *pgxpool.Pool) error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	if err := leasepg.Migrate(ctx, pool); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS quickstart_invoices (customer text, item text)"); err != nil {
		return err
	}
	outbox, err := leasepg.OpenOutbox(ctx, leasepg.OutboxConfig{Pool: pool, Name: "quickstart", Partitions: 4})
	if err != nil {
		return err
	}
	if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { // a service also writes its orders' rows here
		var records []dispatch.Record
		for i := range orders {
			records = append(records, dispatch.Record{Domain: fmt.Sprint("customer-", i%4), Payload: fmt.Append(nil, "order ", i/4+1)})
		}
		return outbox.Enqueue(ctx, tx, records...)
	}); err != nil {
		return err
	}

	group, err := leasepg.OpenGroup(ctx, leasepg.GroupConfig{
		Conn: pool.Config().ConnConfig, Group: "quickstart", Outbox: outbox,
		Ledger: lease.Config{MaxRetries: lease.DefaultRetries},
	})
	if err != nil {
		return err
	}
	var done atomic.Int32
	handle := func(ctx context.Context, job dispatch.Job) error {
		time.Sleep(50 * time.Millisecond) // the work
		customer, order := job.Record.Domain, string(job.Record.Payload)
		if customer == "customer-1" && order == "order 2" && job.Lease.RetryCount == 0 {
			fmt.Println(customer, order, "failed, will be retried")
			return errors.New("payment provider did not answer")
		}
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO quickstart_invoices VALUES ($1, $2)", customer, order); err != nil {
				return err
			}
			return leasepg.SucceedTx(ctx, tx, job.Ledger, job.Lease) // last statement of the transaction: both are committed or neither
		})
		if err != nil {
			return err
		}
		fmt.Println(customer, order, "done")
		if done.Add(1) == orders {
			stop() // a service runs until SIGTERM
		}
		return nil
	}
	consumer, err := dispatch.NewConsumer(group, dispatch.Config{Handler: handle, DeadLetter: dispatch.Discard})
	if err != nil {
		return err
	}
	return consumer.Run(ctx) // nil after a complete drain
}

// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file shows each part over the database that DATABASE_URL names. TestExamples runs it, where there is a PostgreSQL.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasepg"
)

// A ledger that all processes on the database share.
func ExampleOpenStore() { //nolint:testableexamples // it needs a server
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	if err := leasepg.Migrate(ctx, pool); err != nil { // or in a deployment step of its own
		panic(err)
	}
	store, err := leasepg.OpenStore(ctx, leasepg.StoreConfig{Pool: pool, Name: "example"})
	if err != nil {
		panic(err)
	}
	ledger, err := durable.New(durable.Config{Store: store})
	if err != nil {
		panic(err)
	}
	held, err := ledger.TryAcquire(ctx, "order-17", 1)
	fmt.Println(held.Status, err)
	queued, err := ledger.TryAcquire(ctx, "order-17", 2) // from another process, say
	fmt.Println(queued.Status, err)
	done, err := ledger.Succeed(ctx, "order-17", held.Lease.Token)
	fmt.Println(done.Status, err)
	// It prints:
	// ACQUIRED <nil>
	// ENQUEUED <nil>
	// NEXT_HINT <nil>
}

// A record is written in the transaction of the row that it is about, and handled by whoever owns its partition. The handler's
// row and the end of its record are one transaction too.
func ExampleOpenGroup() { //nolint:testableexamples // it needs a server
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	if err := leasepg.Migrate(ctx, pool); err != nil {
		panic(err)
	}
	outbox, err := leasepg.OpenOutbox(ctx, leasepg.OutboxConfig{Pool: pool, Name: "example", Partitions: 4})
	if err != nil {
		panic(err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { // a service also writes its order here
		return outbox.Enqueue(ctx, tx, dispatch.Record{Domain: "ann", Payload: []byte("order 1")},
			dispatch.Record{Domain: "ann", Payload: []byte("order 2")})
	})
	if err != nil {
		panic(err)
	}

	group, err := leasepg.OpenGroup(ctx, leasepg.GroupConfig{
		Conn: pool.Config().ConnConfig, Group: "example", Outbox: outbox,
	})
	if err != nil {
		panic(err)
	}
	handle := func(ctx context.Context, job dispatch.Job) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { // a service also writes its invoice here
			return leasepg.SucceedTx(ctx, tx, job.Ledger, job.Lease) // the last statement before the commit
		})
		fmt.Println(job.Record.Domain, string(job.Record.Payload), err)
		if string(job.Record.Payload) == "order 2" {
			stop() // a service runs until SIGTERM
		}
		return err
	}
	consumer, err := dispatch.NewConsumer(group, dispatch.Config{Handler: handle, DeadLetter: dispatch.Discard})
	if err != nil {
		panic(err)
	}
	fmt.Println(consumer.Run(ctx))
	// It prints:
	// ann order 1 <nil>
	// ann order 2 <nil>
	// <nil>
}

// Dead letters in the database: NewLetters is the DeadLetter of a dispatcher, and what operators list and discard.
func ExampleOpenLetters() { //nolint:testableexamples // it needs a server
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	if err := leasepg.Migrate(ctx, pool); err != nil {
		panic(err)
	}
	letters, err := leasepg.OpenLetters(ctx, leasepg.LettersConfig{Pool: pool})
	if err != nil {
		panic(err)
	}
	keep := deadletter.Keep(letters) // the DeadLetter of a dispatch.Config
	err = keep(ctx, dispatch.DeadLetter{Partition: "example/0", Record: dispatch.Record{Domain: "ann", Payload: []byte("not JSON")},
		Err: errors.New("bad payload")})
	if err != nil {
		panic(err)
	}
	for letter, err := range letters.List(ctx, deadletter.Filter{}) {
		fmt.Println(letter.ID(), letter.Record.Domain, letter.Failure, err)
		fmt.Println(letters.Discard(ctx, letter.ID()))
	}
	// It prints:
	// example/0@0 ann bad payload <nil>
	// <nil>
}

func TestExamples(t *testing.T) {
	at := must(need(t).Database(t.Context()))(t)
	t.Setenv("DATABASE_URL", at)
	for _, e := range []struct {
		run  func()
		want string
	}{
		{ExampleOpenStore, "ACQUIRED <nil>\nENQUEUED <nil>\nNEXT_HINT <nil>\n"},
		{ExampleOpenGroup, "ann order 1 <nil>\nann order 2 <nil>\n<nil>\n"},
		{ExampleOpenLetters, "example/0@0 ann bad payload <nil>\n<nil>\n"},
	} {
		if got := printed(t, e.run); got != e.want {
			t.Errorf("%s\nwant\n%s", got, e.want)
		}
	}
}

// printed is what run writes to standard output.
func printed(t *testing.T, run func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = stdout }()
	var text bytes.Buffer
	read := make(chan error)
	go func() { _, err := io.Copy(&text, r); read <- err }()
	run()
	noError(t, errors.Join(w.Close(), <-read, r.Close()))
	return text.String()
}

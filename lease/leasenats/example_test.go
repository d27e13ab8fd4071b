// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// Two examples: a ledger in a bucket, and a group.

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasenats"
)

func openLedger(ctx context.Context, nc *nats.Conn) (lease.Ledger, error) {
	store, err := leasenats.OpenStore(ctx, leasenats.StoreConfig{Conn: nc, Bucket: "orders", Name: "partition-3"})
	if err != nil {
		return nil, err
	}
	return durable.New(durable.Config{Store: store, MaxRetries: 5})
}

func shareOut(ctx context.Context, nc *nats.Conn, cfg dispatch.Config) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: "ORDERS", Subjects: []string{"orders.*"},
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: "orders.*",
			Destination: "orders.{{partition(12,1)}}.{{wildcard(1)}}"},
	}); err != nil {
		return err
	}
	group, err := leasenats.OpenGroup(ctx, leasenats.GroupConfig{Conn: nc, Stream: "ORDERS", Subject: "orders.*.>", Partitions: 12,
		Bucket: "orders",
		Ledger: lease.Config{MaxRetries: lease.DefaultRetries}})
	if err != nil {
		return err
	}
	consumer, err := dispatch.NewConsumer(group, cfg)
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

// serve starts a server and connects to it. Any with JetStream will do; this one lives in the process, until it is stopped.
func serve() (nc *nats.Conn, stop func()) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir,
		NoSigs: true})
	if err != nil {
		log.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		log.Fatal("no server")
	}
	if nc, err = nats.Connect(s.ClientURL()); err != nil {
		log.Fatal(err)
	}
	return nc, func() {
		nc.Close()
		s.Shutdown()
		_ = os.RemoveAll(dir)
	}
}

func ExampleOpenGroup() {
	ctx, stop := context.WithCancel(context.Background())
	nc, hangUp := serve()
	defer hangUp()

	ended := make(chan error, 1)
	go func() {
		ended <- shareOut(ctx, nc, dispatch.Config{DeadLetter: dispatch.Discard,
			Handler: func(_ context.Context, job dispatch.Job) error {
				fmt.Printf("%s %s\n", job.Record.Domain, job.Record.Payload)
				stop()
				return nil
			}})
	}()
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	// Retries until the stream has been created.
	if _, err := js.Publish(ctx, "orders.customer-7", []byte("two hats"), jetstream.WithRetryAttempts(100)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-ended)
	// Output:
	// orders.9.customer-7 two hats
	// <nil>
}

func ExampleOpenStore() {
	ctx := context.Background()
	nc, stop := serve()
	defer stop()

	before, err := openLedger(ctx, nc)
	if err != nil {
		log.Fatal(err)
	}
	held, _ := before.TryAcquire(ctx, "order-17", 1)
	_, _ = before.Offer(ctx, "order-17", 2)
	_, _ = before.Succeed(ctx, "order-17", held.Lease.Token)

	after, err := openLedger(ctx, nc) // another process, or the same one later
	if err != nil {
		log.Fatal(err)
	}
	for head, err := range after.Ready(ctx) {
		fmt.Println(head.Domain, head.Offset, err)
		next, _ := after.AcquireNext(ctx, head.Domain)
		fmt.Println(next.Status, next.Lease.Token > held.Lease.Token)
	}
	// Output:
	// order-17 2 <nil>
	// ACQUIRED true
}

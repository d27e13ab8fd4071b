package leasenats_test

// This file shows a ledger in a bucket.

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasenats"
)

func openLedger(ctx context.Context, nc *nats.Conn) (*durable.Ledger, error) {
	store, err := leasenats.Open(ctx, leasenats.Config{Conn: nc, Bucket: "orders", Ledger: "partition-3"})
	if err != nil {
		return nil, err
	}
	return durable.New(durable.Config{Store: store, MaxRetries: 5})
}

func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// Any server with JetStream will do; this one lives in the process.
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true})
	if err != nil {
		log.Fatal(err)
	}
	s.Start()
	defer s.Shutdown()
	if !s.ReadyForConnections(20 * time.Second) {
		log.Fatal("no server")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()

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

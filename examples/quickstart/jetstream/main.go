// Jetstream processes the orders of a JetStream stream: in order per customer, customers in parallel, failed orders again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasenats"
)

const orders = 20 // from 4 customers

func main() {
	url := flag.String("url", nats.DefaultURL, "address of a NATS server with JetStream")
	flag.Parse()
	conn, err := nats.Connect(*url)
	if err != nil {
		log.Fatalf("no NATS server at %s: %v", *url, err)
	}
	if err := publish(conn); err != nil {
		log.Fatal(err)
	}
	if err := consume(conn); err != nil {
		log.Fatal(err)
	}
}

// publish creates the stream and sends the orders. The server maps each customer to one of 4 partitions.
func publish(conn *nats.Conn) error {
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	ctx := context.Background()
	_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: "QUICKSTART", Subjects: []string{"orders.*"},
		SubjectTransform: &jetstream.SubjectTransformConfig{
			Source: "orders.*", Destination: "orders.{{partition(4,1)}}.{{wildcard(1)}}",
		},
	})
	for i := 0; err == nil && i < orders; i++ {
		_, err = js.Publish(ctx, fmt.Sprint("orders.customer-", i%4), fmt.Append(nil, "order ", i/4+1))
	}
	return err
}

func consume(conn *nats.Conn) error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	group, err := leasenats.OpenGroup(ctx, leasenats.GroupConfig{
		Conn: conn, Stream: "QUICKSTART", Subject: "orders.*.>", Partitions: 4, Bucket: "quickstart",
		Ledger: lease.Config{MaxRetries: lease.DefaultRetries},
		Domain: func(r dispatch.Record) string { return strings.SplitN(r.Domain, ".", 3)[2] }, // orders.PARTITION.CUSTOMER
	})
	if err != nil {
		return err
	}
	var done atomic.Int32
	handle := func(_ context.Context, job dispatch.Job) error {
		time.Sleep(50 * time.Millisecond) // the work
		customer, order := job.Record.Domain, string(job.Record.Payload)
		if customer == "customer-1" && order == "order 2" && job.Lease.RetryCount == 0 {
			fmt.Println(customer, order, "failed, will be retried")
			return errors.New("payment provider did not answer")
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

// SPDX-License-Identifier: Apache-2.0

package leasekafka_test

// The consumer of orders from docs/kafka.md, against a fake broker.

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasekafka"
)

func ExampleOpenGroup() {
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"))
	defer cluster.Close()
	brokers := cluster.ListenAddrs()
	producer, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer producer.Close()
	for i := range 6 {
		producer.Produce(context.Background(), kgo.KeyStringRecord(fmt.Sprint("customer-", i%2), fmt.Sprint("order-", i)), nil)
	}

	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	var done atomic.Int64
	place := func(_ context.Context, job dispatch.Job) error {
		if done.Add(1) == 6 {
			stop()
		}
		return nil
	}
	bury := func(_ context.Context, letter dispatch.DeadLetter) error { // in a service: to a topic or a table of its own
		fmt.Println("given up:", letter.Record.Offset, letter.Err)
		return nil
	}
	// in a service: leasenats or leasepg
	stores := map[string]durable.Store{"orders/0": durable.NewMemStore(), "orders/1": durable.NewMemStore()}
	open := func(_ context.Context, partition string) (lease.Ledger, error) {
		return durable.New(durable.Config{Store: stores[partition], MaxRetries: 5})
	}

	group, err := leasekafka.OpenGroup(ctx, leasekafka.GroupConfig{
		Brokers:    brokers,
		Group:      "shipping",
		Topics:     []string{"orders"},
		OpenLedger: open,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	consumer, err := dispatch.NewConsumer(group, dispatch.Config{Handler: place, DeadLetter: bury, MaxInFlight: 64})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := consumer.Run(ctx); err != nil { // until ctx is done; nil after a drain that left nothing
		fmt.Fprintln(os.Stderr, err)
	}
	fmt.Println(done.Load(), "orders placed")
	// Output: 6 orders placed
}

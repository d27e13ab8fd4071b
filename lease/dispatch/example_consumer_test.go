// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file shows many partitions in one process.

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// everything is the Ownership of a process without others beside it: it holds all partitions until it ends. In a group of
// processes it is the Group of leasekafka, leasenats or leasepg.
type everything []dispatch.Partition

func (e everything) Hold(ctx context.Context, work func(context.Context, dispatch.Partition)) error {
	var works sync.WaitGroup
	for _, p := range e {
		works.Go(func() { work(ctx, p) })
	}
	works.Wait()
	return nil
}

func ExampleConsumer() {
	var group everything
	for i := range 3 {
		orders := new(dispatch.Log)
		orders.Append("ann", []byte("an order"))
		ledger, err := lease.NewMemory(lease.Config{MaxRetries: 3})
		if err != nil {
			log.Fatal(err)
		}
		group = append(group, dispatch.Partition{Name: fmt.Sprint("orders/", i), Source: orders, Ledger: ledger})
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var left sync.WaitGroup
	left.Add(3)
	consumer, err := dispatch.NewConsumer(group, dispatch.Config{
		MaxInFlight: 8, // over all partitions
		Handler: func(context.Context, dispatch.Job) error {
			left.Done()
			return nil
		},
		DeadLetter: dispatch.Discard,
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		left.Wait()
		for _, s := range consumer.Stats() {
			fmt.Println(s.Name, s.Held)
		}
		cancel()
	}()
	fmt.Println(consumer.Run(ctx))
	// Output:
	// orders/0 true
	// orders/1 true
	// orders/2 true
	// <nil>
}

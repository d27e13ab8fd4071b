package dispatch_test

// This file shows many partitions in one process.

import (
	"context"
	"fmt"
	"sync"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// everything is the Ownership of a process that has no others beside it: it holds all partitions until it ends.
type everything []dispatch.Partition

func (e everything) Hold(ctx context.Context, work func(context.Context, dispatch.Partition)) error {
	var works sync.WaitGroup
	for _, p := range e {
		works.Go(func() { work(ctx, p) })
	}
	works.Wait()
	return nil
}

func ExampleNewConsumer() {
	var group everything
	for i := range 3 {
		orders := new(dispatch.Log)
		orders.Append("ann", []byte("an order"))
		ledger, _ := lease.NewMemory(lease.Config{MaxRetries: 3})
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
		DeadLetter: func(context.Context, dispatch.DeadLetter) error { return nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() {
		left.Wait()
		cancel()
	}()
	fmt.Println(consumer.Run(ctx))
	// Output: <nil>
}

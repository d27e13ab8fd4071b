// SPDX-License-Identifier: Apache-2.0

// A ledger over a store, and what a lost reply comes to.

package durable_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
)

func ExampleNew() {
	store := durable.NewMemStore() // or leasenats.OpenStore, leasepg.OpenStore, or any durable.Store
	ledger, err := durable.New(durable.Config{Store: store, MaxRetries: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	held, _ := ledger.TryAcquire(ctx, "order-17", 1)
	queued, _ := ledger.TryAcquire(ctx, "order-17", 2)
	fmt.Println(held.Status, queued.Status)

	// Another process on the same store.
	other, _ := durable.New(durable.Config{Store: store, MaxRetries: 3})
	done, _ := other.Succeed(ctx, "order-17", held.Lease.Token)
	fmt.Println(done.Status, done.Next)
	_, err = ledger.Succeed(ctx, "order-17", held.Lease.Token)
	var none *lease.LeaseNotFoundError
	fmt.Println(errors.As(err, &none), none.Status)
	// Output:
	// ACQUIRED ENQUEUED
	// NEXT_HINT 2
	// true ALREADY_PROCESSED
}

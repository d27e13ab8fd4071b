// Breaker puts the two-step circuit breaker of sony/gobreaker into a bulkhead compartment, unchanged. Failures of the
// dependency open it; rejections and canceled calls do not.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/stopbank/stopbank/warden/bulkhead"
)

var errDown = errors.New("payment provider is down")

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	set, payments, err := open(time.Minute)
	if err != nil {
		return err
	}
	ctx := context.Background()
	charge := func(context.Context) (string, error) { return "", errDown }
	for range 4 {
		_, err := bulkhead.Do(ctx, payments, charge)
		fmt.Println(err)
	}
	receipt, err := bulkhead.DoOr(ctx, payments, charge, func(context.Context, error) (string, error) {
		return "order saved, payment pending", nil
	})
	fmt.Println(receipt, err)
	c := set.Snapshot().Compartments[0]
	fmt.Println("failed:", c.Outcomes["failed"], "rejected by the breaker:", c.Rejected["breaker_open"], "fallbacks:", c.Degraded)
	return nil
}

// open returns a set with one compartment, whose breaker opens for openFor after three failures in a row.
func open(openFor time.Duration) (*bulkhead.Set, *bulkhead.Compartment, error) {
	breaker := gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name:        "payments",
		Timeout:     openFor,
		ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= 3 },
		IsExcluded:  bulkhead.IsExcluded,
	})
	set, err := bulkhead.New(bulkhead.Config{Total: 20, Compartments: []bulkhead.CompartmentConfig{
		{Name: "payments", Guaranteed: 10, Timeout: time.Second, Breaker: breaker},
	}})
	if err != nil {
		return nil, nil, err
	}
	payments := set.Compartment("payments")
	return set, payments, nil
}

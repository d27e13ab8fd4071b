// Command breaker puts sony/gobreaker's two-step circuit breaker, as it is, into a compartment: failures of the
// dependency open it, rejections and callers that went away do not.
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
	fails := func(context.Context) (string, error) { return "", errDown }
	for range 4 {
		_, err := bulkhead.Do(ctx, payments, fails)
		fmt.Println(err)
	}
	answer, err := bulkhead.DoOr(ctx, payments, fails, func(context.Context, error) (string, error) {
		return "order kept, to be charged later", nil
	})
	fmt.Println(answer, err)
	c := set.Snapshot().Compartments[0]
	fmt.Println("failed:", c.Outcomes["failed"], "let nothing pass:", c.Rejected["breaker_open"], "degraded:", c.Degraded)
	return nil
}

// open makes a set of one compartment, with a breaker that three failures in a row open for the time given.
func open(rest time.Duration) (*bulkhead.Set, *bulkhead.Compartment, error) {
	breaker := gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name:        "payments",
		Timeout:     rest,
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

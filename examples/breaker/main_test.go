package main

// The program's output, and the calls that must not count as failures of the dependency.

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/stopbank/stopbank/warden/bulkhead"
)

func Example() {
	fmt.Println(run())
	// Output:
	// payment provider is down
	// payment provider is down
	// payment provider is down
	// bulkhead: "payments": breaker: circuit breaker is open
	// order saved, payment pending <nil>
	// failed: 3 rejected by the breaker: 2 fallbacks: 1
	// <nil>
}

// TestCanceledProbe: a half-open breaker lets one call through. If that call is canceled, it has proven nothing and the next
// call is the probe.
func TestCanceledProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, payments, err := open(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		charge := func(context.Context) (string, error) { return "", errDown }
		for range 3 {
			_, _ = bulkhead.Do(t.Context(), payments, charge)
		}
		time.Sleep(11 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		_, err = bulkhead.Do(ctx, payments, func(ctx context.Context) (string, error) {
			cancel()
			<-ctx.Done()
			return "", ctx.Err()
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if _, err = bulkhead.Do(t.Context(), payments, charge); !errors.Is(err, errDown) {
			t.Fatalf("the call after a canceled probe did not run: %v", err)
		}
		_, err = bulkhead.Do(t.Context(), payments, charge)
		if !errors.Is(err, gobreaker.ErrOpenState) || !errors.Is(err, bulkhead.ErrBreakerOpen) {
			t.Errorf("after a failed probe: %v, want an open breaker", err)
		}
	})
}

// TestCanceledCallsDoNotOpenTheBreaker, however many there are.
func TestCanceledCallsDoNotOpenTheBreaker(t *testing.T) {
	_, payments, err := open(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		_, _ = bulkhead.Do(ctx, payments, func(ctx context.Context) (string, error) { cancel(); <-ctx.Done(); return "", ctx.Err() })
	}
	if _, err := bulkhead.Do(t.Context(), payments, func(context.Context) (string, error) { return "", nil }); err != nil {
		t.Error(err)
	}
}

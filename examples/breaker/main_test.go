package main

// What the program prints is part of it; and what a breaker of somebody else must not be told.

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
	// order kept, to be charged later <nil>
	// failed: 3 let nothing pass: 2 degraded: 1
	// <nil>
}

// TestAProbeThatWasNotUsed: half open, the breaker lets one call pass. When that call's caller goes away it has proven
// nothing, and the next one is let pass in its place.
func TestAProbeThatWasNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, payments, err := open(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		fails := func(context.Context) (string, error) { return "", errDown }
		for range 3 {
			_, _ = bulkhead.Do(t.Context(), payments, fails)
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
		if _, err = bulkhead.Do(t.Context(), payments, fails); !errors.Is(err, errDown) {
			t.Fatalf("the probe was lost: %v", err)
		}
		_, err = bulkhead.Do(t.Context(), payments, fails)
		if !errors.Is(err, gobreaker.ErrOpenState) || !errors.Is(err, bulkhead.ErrBreakerOpen) {
			t.Errorf("a failed probe opens it again: %v", err)
		}
	})
}

// TestManyCallersWhoGoAwayOpenNothing, and neither do rejections.
func TestManyCallersWhoGoAwayOpenNothing(t *testing.T) {
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

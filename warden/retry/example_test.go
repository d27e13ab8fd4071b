// SPDX-License-Identifier: Apache-2.0

// Calls over a protocol of your own; for HTTP and gRPC there are wardenhttp.NewRetry and wardengrpc.NewRetry.

package retry_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/retry"
)

// A Caller decides which attempts may start. This dependency rejects the first attempt; the second is
// within the budget.
func ExampleCaller() {
	caller, err := retry.New(retry.Config{Backoff: time.Millisecond})
	if err != nil {
		panic(err)
	}
	attempts := 0
	send := func() error {
		if attempts++; attempts == 1 {
			return errors.New("busy")
		}
		return nil
	}

	call, err := caller.Begin(retry.Target{Dependency: "payments", Path: "/charge", Priority: decision.Normal})
	if err != nil {
		fmt.Println("not sent:", err) // the dependency rejects most calls: errors.Is(err, retry.ErrThrottled)
		return
	}
	deadline := time.Now().Add(time.Second)
	for {
		if err = send(); err == nil {
			call.Ended(decision.Normal, retry.Accepted)
			break
		}
		call.Ended(decision.Normal, retry.Rejected)
		wait, again := call.Retry(0, deadline) // 0: the dependency did not say when
		if !again {
			break
		}
		time.Sleep(wait) // the random backoff: below a millisecond here
	}
	fmt.Println(err, attempts, caller.Stats().Retries)
	// Output: <nil> 2 1
}

// A dependency that rejects everything gets a tenth more than the demand, and not three times as much.
func ExampleCaller_outage() {
	caller, err := retry.New(retry.Config{
		Backoff: time.Microsecond,
		Rand:    func() float64 { return 0.99 }, // a random number in production, which also throttles up to 0.8 of the calls
	})
	if err != nil {
		panic(err)
	}
	attempts := 0
	for range 100 {
		call, err := caller.Begin(retry.Target{Priority: decision.Normal})
		if err != nil {
			panic(err)
		}
		for again := true; again; _, again = call.Retry(0, time.Now().Add(time.Second)) {
			attempts++
			call.Ended(decision.Normal, retry.Rejected)
		}
	}
	fmt.Println(attempts, "attempts of 100 calls;", caller.Stats().NoBudget, "without budget for another")
	// Output: 110 attempts of 100 calls; 100 without budget for another
}

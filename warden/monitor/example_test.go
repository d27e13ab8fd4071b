// SPDX-License-Identifier: Apache-2.0

// One runnable example per entry point.

package monitor_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Sampling the process, with the work that it does.
func Example() {
	sampler, err := monitor.New()
	if err != nil {
		panic(err)
	}
	work := sampler.Recorder()

	span := work.Start("resize") // around whatever is to be measured
	<-time.After(20 * time.Millisecond)
	span.End()

	s := sampler.Sample()
	fmt.Println(s.Service.Count, s.Service.P50 >= 15*time.Millisecond)
	if s.Runnable.OK { // since Go 1.26: ask before you believe it
		fmt.Println("per processor:", s.Runnable.Value >= 0)
	} else {
		fmt.Println("per processor: true")
	}
	// Output:
	// 1 true
	// per processor: true
}

// A pool of connections, in use as its own statistics say.
func ExampleNew() {
	orders := monitor.Pool{Name: "orders-db", Stats: func() monitor.PoolStats { return monitor.PoolStats{InUse: 3, Max: 10} }}
	sampler, err := monitor.New(orders)
	if err != nil {
		panic(err)
	}
	fmt.Println(sampler.Sample().Pools)

	_, err = monitor.New(monitor.Pool{Name: "incomplete"})
	fmt.Println(errors.Is(err, decision.ErrInvalid), err)
	// Output:
	// [{orders-db  {3 10 {0 false}} }]
	// true warden: monitor.Pools[0].Stats is nil; allowed: a function
}

// An execution that says nothing about the work is discarded.
func ExampleSpan_Discard() {
	sampler, _ := monitor.New()
	work := sampler.Recorder()
	for i := range 3 {
		span := work.Start("resize")
		<-time.After(time.Millisecond)
		if i == 2 { // the connection was hijacked
			span.Discard()
			continue
		}
		span.End()
	}
	fmt.Println(sampler.Sample().Service.Count)
	// Output: 2
}

// The rows of the compartments: what they add to a limiter, and what peers cost that isolate or break circuits.

package main

import (
	"context"
	"time"

	"github.com/failsafe-go/failsafe-go"
	failsafebulkhead "github.com/failsafe-go/failsafe-go/bulkhead"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
)

func bulkheadRows() []row {
	var rows []row
	for _, parallel := range []bool{false, true} {
		rows = append(rows, compartmentRow(parallel))
	}
	return rows
}

func answer(context.Context) (int, error) { return 0, nil }

// compartments makes a set of one compartment.
func compartments(c bulkhead.CompartmentConfig) *bulkhead.Compartment {
	c.Name = "a"
	s, err := bulkhead.New(bulkhead.Config{Total: places, Compartments: []bulkhead.CompartmentConfig{c}})
	if err != nil {
		exit("%v", err)
	}
	return s.Compartment("a")
}

// compartment is Do in a compartment.
func compartment(name string, c bulkhead.CompartmentConfig) variant {
	return variant{name, func() func(int) {
		k, ctx := compartments(c), context.Background()
		return func(n int) {
			for range n {
				_, _ = bulkhead.Do(ctx, k, answer)
			}
		}
	}}
}

// compartmentRow: a call in a healthy compartment, without breaker and timeouts.
func compartmentRow(parallel bool) row {
	return row{"bulkhead", "Do in a healthy compartment", parallel,
		compartment("bulkhead.Do", bulkhead.CompartmentConfig{Guaranteed: places}),
		[]peer{
			{variant{"limiter.Do", func() func(int) {
				l, ctx := target(places), context.Background()
				return func(n int) {
					for range n {
						_, _ = limiter.Do(ctx, l, limiter.Task{}, answer)
					}
				}
			}}, 2},
			{compartment("bulkhead.Do with a MaxWait", bulkhead.CompartmentConfig{Guaranteed: places, MaxQueue: 1, MaxWait: time.Second}), 0},
			{variant{"failsafe-go With(bulkhead).Get", func() func(int) {
				e := failsafe.With[int](failsafebulkhead.New[int](places))
				return func(n int) {
					for range n {
						_, _ = e.Get(func() (int, error) { return 0, nil })
					}
				}
			}}, 0},
		},
	}
}

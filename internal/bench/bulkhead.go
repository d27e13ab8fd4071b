// Benchmark rows of bulkheads: their cost over a limiter, beside peers that isolate calls or break circuits.

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/failsafe-go/failsafe-go"
	failsafebulkhead "github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/sony/gobreaker/v2"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
)

func bulkheadRows() []row {
	var rows []row
	for _, parallel := range []bool{false, true} {
		rows = append(rows, compartmentRow(parallel))
	}
	return append(rows, breakerRow(), timeoutRow(), tenantRow())
}

func answer(context.Context) (int, error) { return 0, nil }

// compartments returns a set of one compartment.
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

// breakerRow: the same with a circuit breaker, which is the peer's.
func breakerRow() row {
	settings := gobreaker.Settings{IsExcluded: bulkhead.NoVerdict}
	return row{"bulkhead", "Do with a circuit breaker", false,
		variant{"bulkhead.Do with gobreaker", func() func(int) {
			k, ctx := compartments(bulkhead.CompartmentConfig{Guaranteed: places, Breaker: gobreaker.NewTwoStepCircuitBreaker[any](settings)}), context.Background()
			return func(n int) {
				for range n {
					_, _ = bulkhead.Do(ctx, k, answer)
				}
			}
		}},
		[]peer{{variant{"gobreaker Execute alone", func() func(int) {
			b := gobreaker.NewCircuitBreaker[int](settings)
			return func(n int) {
				for range n {
					_, _ = b.Execute(func() (int, error) { return 0, nil })
				}
			}
		}}, 0}},
	}
}

// timeoutRow: with a Timeout the function has a goroutine of its own.
func timeoutRow() row {
	return row{"bulkhead", "Do with a Timeout", false,
		compartment("bulkhead.Do with a Timeout", bulkhead.CompartmentConfig{Guaranteed: places, Timeout: time.Second}),
		[]peer{{variant{"context.WithTimeout, a goroutine, a channel", func() func(int) {
			return func(n int) {
				for range n {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					done := make(chan int, 1)
					go func() {
						defer cancel()
						v, _ := answer(ctx)
						done <- v
					}()
					select {
					case <-done:
					case <-ctx.Done():
					}
				}
			}
		}}, 0}},
	}
}

// tenantRow: to find one of 100,000 tenants. The target, 150 ns, is a time and stands in the docs.
func tenantRow() row {
	const keys = 100_000
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprint("tenant ", i*7919%keys)
	}
	c := compartments(bulkhead.CompartmentConfig{Guaranteed: places, MaxQueue: 1, Tenants: bulkhead.TenantsConfig{Max: places, Keys: keys}})
	m := make(map[string]*bulkhead.Compartment, keys)
	return row{"bulkhead", "to find one of 100,000 tenants", false,
		variant{"Compartment.Tenant", func() func(int) {
			for _, name := range names {
				m[name] = c.Tenant(name)
			}
			return func(n int) {
				for i := range n {
					_ = c.Tenant(names[i%keys])
				}
			}
		}},
		[]peer{{variant{"a map, without a lock", func() func(int) {
			return func(n int) {
				for i := range n {
					_ = m[names[i%keys]]
				}
			}
		}}, 0}},
	}
}

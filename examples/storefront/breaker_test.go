package main

// gobreaker as it is and in a wrapper, over a dependency that hangs and holds all slots.

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
)

// counted wraps a breaker to count what it is asked, and forwards nothing but Allow.
type counted struct {
	breaker bulkhead.Breaker
	asked   atomic.Int64
}

func (c *counted) Allow() (func(error), error) { c.asked.Add(1); return c.breaker.Allow() }

// saying is counted with one line more.
type saying struct {
	counted
	state func() gobreaker.State
}

func (s *saying) IsOpen() bool { return s.state() == gobreaker.StateOpen }

func TestNobodyWaitsBehindAnOpenBreaker(t *testing.T) {
	for name, wrapped := range map[string]func(*gobreaker.TwoStepCircuitBreaker[any]) bulkhead.Breaker{
		"bare": func(b *gobreaker.TwoStepCircuitBreaker[any]) bulkhead.Breaker { return b },
		"wrapped": func(b *gobreaker.TwoStepCircuitBreaker[any]) bulkhead.Breaker {
			return &saying{counted{breaker: b}, b.State}
		},
		"silent": func(b *gobreaker.TwoStepCircuitBreaker[any]) bulkhead.Breaker { return &counted{breaker: b} },
	} {
		synctest.Test(t, func(t *testing.T) {
			set, err := bulkhead.New(bulkhead.Config{Total: 10, Compartments: []bulkhead.CompartmentConfig{{
				Name: "reports", Guaranteed: 10, MaxQueue: 100, MaxWait: 5 * time.Second, Timeout: time.Second,
				Breaker: wrapped(gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
					ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= 10 },
					IsExcluded:  bulkhead.IsExcluded,
				})),
			}}})
			if name == "silent" {
				if !errors.Is(err, decision.ErrInvalid) {
					t.Errorf("B6: New says nothing about calls that would wait behind it: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			hung := make(chan struct{})
			for range 10 {
				go func() {
					_, _ = bulkhead.Do(t.Context(), set.Compartment("reports"), func(context.Context) (int, error) { <-hung; return 0, nil })
				}()
			}
			time.Sleep(2 * time.Second)
			began := time.Now()
			_, err = bulkhead.Do(t.Context(), set.Compartment("reports"), func(context.Context) (int, error) { return 0, nil })
			var open *decision.Rejection
			if took := time.Since(began); !errors.As(err, &open) || open.Reason != bulkhead.BreakerOpen || took != 0 {
				t.Errorf("B6: %s: after %v: %v", name, took, err)
			}
			close(hung)
		})
	}
}

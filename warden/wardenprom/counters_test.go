// SPDX-License-Identifier: Apache-2.0

// Counters through a real registry, while load runs.

package wardenprom_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

// everyThird is a circuit breaker that rejects every third call.
type everyThird struct {
	mu sync.Mutex
	n  int
}

func (*everyThird) IsOpen() bool { return false }

func (b *everyThird) Allow() (func(error), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n++; b.n%3 == 0 {
		return nil, errors.New("open")
	}
	return func(error) {}, nil
}

// TestCountersNeverFall scrapes a limiter, a set and a ledger's events under load: rate() and increase() take a counter that falls
// for a restart. In the end what the observers counted is what the sources counted.
func TestCountersNeverFall(t *testing.T) {
	events := must(wardenprom.NewEvents("e"))(t)
	acquired, ops := ledgerEvent(t), events.Ledger()
	l := must(limiter.New(limiter.Config{Name: "l", MaxQueue: 4, Observer: events.Limiter(),
		Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 2, Yields: 1}}))(t)
	set := must(bulkhead.New(bulkhead.Config{Total: 4, Observer: events.Bulkhead(), Compartments: []bulkhead.CompartmentConfig{
		{Name: "a", Guaranteed: 2, Max: 4, MaxQueue: 2, MaxWait: 50 * time.Microsecond, Breaker: &everyThird{}},
		{Name: "b", Max: 4, MaxQueue: 2, Timeout: 30 * time.Microsecond},
	}}))(t)
	r := registered(t, events, must(wardenprom.New(wardenprom.Config{Limiters: map[string]*limiter.Limiter{"l": l},
		Sets: map[string]*bulkhead.Set{"s": set}}))(t))

	stop := make(chan struct{})
	var load sync.WaitGroup
	var decided atomic.Int64
	for i := range 8 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i+1)*20*time.Microsecond)
				_, _ = limiter.Do(ctx, l, limiter.Task{}, func(context.Context) (int, error) { return 0, nil })
				_, _ = bulkhead.Do(ctx, set.Compartment([]string{"a", "b"}[i%2]), func(context.Context) (int, error) {
					time.Sleep(20 * time.Microsecond) // often longer than b's Timeout
					return 0, nil
				})
				ops.Observe(acquired)
				decided.Add(1)
				cancel()
			}
		})
	}
	last := map[string]float64{}
	for range 100 {
		for _, f := range must(r.Gather())(t) {
			for _, m := range f.GetMetric() {
				if m.Counter == nil {
					continue
				}
				name := fmt.Sprint(f.GetName(), m.GetLabel())
				if v := m.Counter.GetValue(); v < last[name] {
					t.Errorf("%s fell from %g to %g", name, last[name], v)
				} else {
					last[name] = v
				}
			}
		}
	}
	close(stop)
	load.Wait()
	l.Close()
	for set.Snapshot().InFlight > 0 { // what was abandoned
		time.Sleep(time.Millisecond)
	}
	p := scrape(t, r)
	of := func(metric string) (sum float64) {
		for series, v := range p.values {
			if strings.HasPrefix(series, metric+"{") && !strings.HasSuffix(series, " sum") {
				sum += v
			}
		}
		return sum
	}
	for observed, counter := range map[string]string{
		"stopbank_limiter_wait_seconds":      "stopbank_limiter_submitted_total",
		"stopbank_limiter_execution_seconds": "stopbank_limiter_executed_total",
		"stopbank_compartment_wait_seconds":  "stopbank_compartment_submitted_total",
	} {
		if a, b := of(observed), of(counter); a != b || a == 0 {
			t.Errorf("%s: %v were observed; %s: %v", observed, a, counter, b)
		}
	}
	p.want(t, map[string]float64{
		`stopbank_lease_decisions_total{ledger="e",operation="try_acquire",result="acquired"}`: float64(decided.Load()),
	})
}

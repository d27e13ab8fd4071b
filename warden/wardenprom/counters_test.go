// SPDX-License-Identifier: Apache-2.0

// Counters through a real registry, while load runs.

package wardenprom_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// TestCountersNeverFall scrapes a limiter and a set under load: rate() and increase() take a counter that falls for a restart.
func TestCountersNeverFall(t *testing.T) {
	l := must(limiter.New(limiter.Config{Name: "l", MaxQueue: 4,
		Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 2, Yields: 1}}))(t)
	set := must(bulkhead.New(bulkhead.Config{Total: 4, Compartments: []bulkhead.CompartmentConfig{
		{Name: "a", Guaranteed: 2, Max: 4, MaxQueue: 2, MaxWait: 50 * time.Microsecond, Breaker: &everyThird{}},
		{Name: "b", Max: 4, MaxQueue: 2, Timeout: 30 * time.Microsecond},
	}}))(t)
	metrics := must(wardenprom.New(wardenprom.Config{Limiters: map[string]*limiter.Limiter{"l": l},
		Sets: map[string]*bulkhead.Set{"s": set}}))(t)
	r := registered(t, metrics)

	const enough = 300
	stop := make(chan struct{})
	var load sync.WaitGroup
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
				cancel()
			}
		})
	}
	last := map[string]float64{}
	for range enough {
		families := must(r.Gather())(t)
		for _, f := range families {
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
	sum := 0.0
	for _, v := range last {
		sum += v
	}
	if sum < enough {
		t.Errorf("the load has hardly run: %v", last)
	}
}

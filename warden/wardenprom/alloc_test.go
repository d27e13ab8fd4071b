// SPDX-License-Identifier: Apache-2.0

//go:build !race

// What metrics cost a request.

package wardenprom_test

import (
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

// TestAllocations: a collector costs requests nothing; histograms cost no allocation but for the few exemplars.
func TestAllocations(t *testing.T) {
	events := must(wardenprom.NewEvents("observed"))(t)
	tasks, calls, ops := events.Limiter(), events.Bulkhead(), events.Ledger()
	acquired := ledgerEvent(t)
	plain, observed := newLimiter(t, 1, nil), newLimiter(t, 1, tasks)
	full := must(limiter.New(limiter.Config{Observer: tasks, Initial: decision.ControlDecision{Seq: 1}}))(t)
	limiters := map[string]*limiter.Limiter{"plain": plain, "observed": observed}
	r := registered(t, must(wardenprom.New(wardenprom.Config{Limiters: limiters}))(t), events)
	use := func(l *limiter.Limiter) func() {
		return func() {
			if p, err := l.TryAcquire(limiter.Task{ID: "4bf92f3577b34da6a3ce929d0e0e4736"}); err == nil {
				p.Release()
			}
		}
	}
	call := bulkhead.Event{Kind: bulkhead.Answered, Explanation: decision.Explanation{Limiter: "a", Outcome: bulkhead.Succeeded},
		Took: time.Millisecond}
	for _, c := range []struct {
		name string
		most float64
		run  func()
	}{
		{"with a collector alone", 0, use(plain)},
		{"with histograms", 0, use(observed)},
		{"rejected, with histograms", 1, use(full)},
		{"a call in a compartment", 0, func() { calls.Observe(call) }},
		{"a decision of a ledger", 0, func() { ops.Observe(acquired) }},
	} {
		for range 1000 { // until every bucket that occurs is there
			c.run()
		}
		scrape(t, r)
		if got := testing.AllocsPerRun(1000, c.run); got > c.most {
			t.Errorf("%s: %g allocations, want %g at most", c.name, got, c.most)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

//go:build !race

// What logging costs a request: nothing without it, and nothing for what is not logged.

package wardenslog_test

import (
	"io"
	"log/slog"
	"testing"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenslog"
)

func TestAllocations(t *testing.T) {
	log := wardenslog.New(slog.New(slog.NewTextHandler(io.Discard, nil)))
	full, compartments := decision.ControlDecision{Seq: 1}, log.Bulkhead()
	asked := func(initial decision.ControlDecision, o limiter.Observer) func() {
		l := must(limiter.New(limiter.Config{Initial: initial, Observer: o}))(t)
		return func() {
			if p, err := l.TryAcquire(limiter.Task{}); err == nil {
				p.Release()
			}
		}
	}
	observed := func(kind bulkhead.Kind, e decision.Explanation) func() {
		e.Limiter = "a"
		return func() { compartments.Observe(bulkhead.Event{Kind: kind, Explanation: e}) }
	}
	for _, c := range []struct {
		name string
		most float64
		run  func()
	}{
		{"run without a logger", 0, asked(decision.ControlDecision{}, nil)},
		{"rejected without a logger", 1, asked(full, nil)},
		{"run with one", 0, asked(decision.ControlDecision{}, log.Limiter())},
		{"rejected with one, beyond the second's lines", 1, asked(full, log.Limiter())},
		{"a call that succeeded", 0, observed(bulkhead.Answered, decision.Explanation{Outcome: bulkhead.Succeeded})},
		{"a rejected call", 0, observed(bulkhead.Answered, decision.Explanation{Outcome: decision.Rejected, Reason: decision.QueueOverflow})},
		{"an abandoned call", 0, observed(bulkhead.Abandoned, decision.Explanation{})},
		{"one that returned", 0, observed(bulkhead.Returned, decision.Explanation{})},
	} {
		for range 100 {
			c.run()
		}
		noError(t, log.Flush(t.Context()))
		if got := testing.AllocsPerRun(20_000, c.run); got > c.most { // ten lines a second are less than one in 20,000
			t.Errorf("%s: %g allocations, want %g at most", c.name, got, c.most)
		}
	}
}

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
	full := decision.ControlDecision{Seq: 1}
	limited := func(initial decision.ControlDecision, o limiter.Observer) *limiter.Limiter {
		return must(limiter.New(limiter.Config{Initial: initial, Observer: o}))(t)
	}
	for _, c := range []struct {
		name string
		most float64
		l    *limiter.Limiter
	}{
		{"run without a logger", 0, limited(decision.ControlDecision{}, nil)},
		{"rejected without a logger", 1, limited(full, nil)},
		{"run with one", 0, limited(decision.ControlDecision{}, log.Limiter())},
		{"rejected with one, beyond the second's lines", 1, limited(full, log.Limiter())},
	} {
		run := func() {
			if p, err := c.l.TryAcquire(limiter.Task{}); err == nil {
				p.Release()
			}
		}
		for range 100 {
			run()
		}
		noError(t, log.Flush(t.Context()))
		if got := testing.AllocsPerRun(20_000, run); got > c.most { // ten lines a second are less than one in 20,000
			t.Errorf("%s: %g allocations, want %g at most", c.name, got, c.most)
		}
	}
}

func TestASetsAllocations(t *testing.T) {
	log := wardenslog.New(slog.New(slog.NewTextHandler(io.Discard, nil)))
	o := log.Bulkhead()
	for _, e := range []bulkhead.Event{
		{Kind: bulkhead.Answered, Explanation: decision.Explanation{Limiter: "a", Outcome: bulkhead.Succeeded}},
		{Kind: bulkhead.Answered, Explanation: decision.Explanation{Limiter: "a", Outcome: decision.Rejected,
			Reason: decision.QueueOverflow}},
		{Kind: bulkhead.Abandoned, Explanation: decision.Explanation{Limiter: "a"}},
		{Kind: bulkhead.Returned, Explanation: decision.Explanation{Limiter: "a"}},
	} {
		for range 100 {
			o.Observe(e)
		}
		noError(t, log.Flush(t.Context()))
		if got := testing.AllocsPerRun(20_000, func() { o.Observe(e) }); got > 0 {
			t.Errorf("%s, %s: %g allocations, want none", e.Kind, e.Outcome, got)
		}
	}
}

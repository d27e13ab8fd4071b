// SPDX-License-Identifier: Apache-2.0

// Histograms: what goes where, and how much of it.

package wardenprom_test

import (
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

func event(o decision.Outcome, waited, took time.Duration) limiter.Event {
	return limiter.Event{Explanation: decision.Explanation{Outcome: o, Waited: waited}, Took: took}
}

func TestTimesGoWhereTheyBelong(t *testing.T) {
	tasks, set := must(wardenprom.NewEvents("l"))(t), must(wardenprom.NewEvents("s"))(t)
	l, c := tasks.Limiter(), set.Bulkhead()
	l.Observe(event(decision.Started, 2*time.Second, 0))
	l.Observe(event(decision.Executed, 2*time.Second, 4*time.Second))
	gone := event(decision.Executed, 32*time.Second, 64*time.Second)
	gone.Abandoned, gone.Task.Priority = true, decision.Critical
	l.Observe(gone)
	bad := event(decision.Executed, time.Second, 127*time.Second)
	bad.Failed, bad.Task.Priority = true, decision.High
	l.Observe(bad)
	l.Observe(event(decision.Rejected, 8*time.Second, 0))
	l.Observe(event(decision.OutcomeCanceled, 16*time.Second, 0))
	for _, e := range []bulkhead.Event{
		{Kind: bulkhead.Answered, Explanation: decision.Explanation{Limiter: "a", Outcome: bulkhead.Failed, Waited: time.Second},
			Took: 2 * time.Second},
		{Kind: bulkhead.Answered, Explanation: decision.Explanation{Limiter: "a", Outcome: decision.Rejected, Waited: 4 * time.Second}},
		{Kind: bulkhead.Returned, Explanation: decision.Explanation{Limiter: "a"}, Took: time.Hour},
		{Kind: bulkhead.Abandoned, Explanation: decision.Explanation{Limiter: "b"}},
	} {
		c.Observe(e)
	}
	p := scrape(t, registered(t, tasks, set))
	p.want(t, map[string]float64{
		`stopbank_limiter_wait_seconds{limiter="l",outcome="started",priority="normal"} sum`:  2,
		`stopbank_limiter_wait_seconds{limiter="l",outcome="rejected",priority="normal"} sum`: 8,
		`stopbank_limiter_wait_seconds{limiter="l",outcome="canceled",priority="normal"} sum`: 16,
		`stopbank_limiter_execution_seconds{limiter="l"} sum`:                                 195,

		`stopbank_limiter_response_seconds{limiter="l",outcome="executed",priority="normal"} sum`:    6,
		`stopbank_limiter_response_seconds{limiter="l",outcome="abandoned",priority="critical"} sum`: 96,
		`stopbank_limiter_response_seconds{limiter="l",outcome="failed",priority="high"} sum`:        128,
		`stopbank_limiter_response_seconds{limiter="l",outcome="rejected",priority="normal"} sum`:    8,
		`stopbank_limiter_response_seconds{limiter="l",outcome="canceled",priority="normal"} sum`:    16,

		`stopbank_compartment_wait_seconds{compartment="a",set="s"} sum`:      5,
		`stopbank_compartment_wait_seconds{compartment="a",set="s"} count`:    2,
		`stopbank_compartment_execution_seconds{compartment="a",set="s"} sum`: 2,
	})
	if n := len(p.families["stopbank_compartment_wait_seconds"].GetMetric()); n != 1 {
		t.Errorf("%d compartments, want 1", n)
	}
	if n := len(p.families["stopbank_limiter_execution_seconds"].GetMetric()[0].GetHistogram().GetBucket()); n != 15 {
		t.Errorf("%d classic buckets, want 14 and the infinite one", n)
	}
}

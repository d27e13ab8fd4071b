// SPDX-License-Identifier: Apache-2.0

// Every code has its sentence, with the numbers of the moment.

package console

import (
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// TestEveryReasonHasItsWords: each reason of a rejection is a sentence, in the sum and for one task.
func TestEveryReasonHasItsWords(t *testing.T) {
	seen := map[string]decision.RejectionReason{}
	for _, r := range append(limiter.Reasons(), bulkhead.TimeoutQueued, bulkhead.BreakerOpen, decision.Reentry) {
		for _, said := range []string{
			clauseOf(string(r)), explain(decision.Explanation{Reason: r, Waited: time.Second, QueueLen: 2}),
		} {
			if other, twice := seen[said]; twice && other != r {
				t.Errorf("%s and %s are the same: %q", r, other, said)
			}
			if seen[said] = r; len(said) < 20 && r != decision.Canceled {
				t.Errorf("%s is %q", r, said)
			}
		}
	}
	if said := clauseOf("no_such_reason") + explain(decision.Explanation{}); said != "" {
		t.Errorf("no reason is %q", said)
	}
}

// TestWhy: with the numbers of the moment.
func TestWhy(t *testing.T) {
	for want, e := range map[string]decision.Explanation{
		"queue full: 1,024 tasks were waiting": {Reason: decision.QueueOverflow, QueueLen: 1024},
		"queue full: 1 task was waiting":       {Reason: decision.QueueOverflow, QueueLen: 1},
		"no free slot, and it may not queue: 1 task in flight, limit 1 (the concurrency limit)": {
			Reason: decision.NoSlot, InFlight: 1, QueueLen: 3, Bound: decision.BoundTarget, Limit: 1,
		},
		"queue full: waited 1.25 s and made room for a newer task": {
			Reason: decision.QueueOverflow, QueueLen: 5, Waited: 1250 * time.Millisecond,
		},
		"no free slot, and there is no queue: 3 tasks in flight": {Reason: decision.QueueOverflow, InFlight: 3},
		"no free slot, and there is no queue: 1 task in flight, limit 1 (the concurrency limit)": {
			Reason: decision.QueueOverflow, InFlight: 1, Bound: decision.BoundTarget, Limit: 1,
		},
		"no free slot, and there is no queue: 3 tasks in flight, limit 3 (all slots of the compartment)": {
			Reason: decision.QueueOverflow, InFlight: 3, Bound: bulkhead.BoundSlots, Limit: 3,
		},
		"no free slot, and there is no queue: 5 tasks in flight, limit 5 (all slots of the compartment, its own and borrowed ones)": {
			Reason: decision.QueueOverflow, InFlight: 5, Bound: bulkhead.BoundBorrow, Limit: 5},
		"no free slot, and there is no queue: 2 tasks in flight, limit 2 (all slots of one tenant)": {
			Reason: decision.QueueOverflow, InFlight: 2, Bound: bulkhead.BoundTenant, Limit: 2,
		},
		"no free slot, and there is no queue: 2 tasks in flight, limit 10 (all slots of the set, or the rest is reserved)": {
			Reason: decision.QueueOverflow, InFlight: 2, Bound: bulkhead.BoundTotal, Limit: 10,
		},
		"load shedding: the concurrency limit is 0": {Reason: decision.PressureHigh, Decision: &decision.ControlDecision{}},
		"load shedding: all work of its priority that would have to queue is rejected": {
			Reason: decision.PressureHigh, Decision: &decision.ControlDecision{TargetConcurrency: 1},
		},
		"waited 12.3 ms, then its deadline had passed or could no longer be met": {
			Reason: decision.DeadlineExceeded, Waited: 12345 * time.Microsecond,
		},
		"its deadline had passed, or could not be met, when it arrived":     {Reason: decision.DeadlineExceeded},
		"waited 3 min for a slot, which is all that its compartment allows": {Reason: bulkhead.TimeoutQueued, Waited: 3 * time.Minute},
		"its caller went away; it had waited 500 µs":                        {Reason: decision.Canceled, Waited: 500 * time.Microsecond},
		"its caller had gone away when it arrived":                          {Reason: decision.Canceled},
	} {
		if got := explain(e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestEveryGroundHasItsWords: what this module's controller says is a sentence; what another says is shown as it is.
func TestEveryGroundHasItsWords(t *testing.T) {
	for _, c := range []struct {
		code, signal string
		value        jsonNumber
		want         string
	}{
		{"queueing", "lag_p90_seconds", 0.03, "CPU overload, p90 scheduler delay 30 ms"},
		{"queueing", "lag_p50_seconds", 0.003, "CPU overload, p50 scheduler delay 3 ms"},
		{"queueing", "runnable_per_processor", 32.51, "CPU overload, 32.5 runnable goroutines per processor"},
		{"busy", "throttled_share", 0.2, "CPU busy, throttled 20 % of the time"},
		{"busy", "utilization", 0.97, "CPU busy, utilization 97 %"},
		{"busy", "none", 0, "CPU busy, none 0"},
		{"calm", "utilization", 0.1, "CPU pressure low, utilization 10 %"},
		{"no_information", "none", 0, "no CPU reading"},
		{"service_not_fed", "service_count", 0, "execution times are not measured here"},
		{"service_slow", "service_inflation", 1.234, "execution time is 1.23 times its baseline"},
		{"service_trial", "service_inflation", 1.06, "execution time is 1.06 times its baseline: a lower limit is being tried"},
		{"abandoned", "service_abandoned", 0.941, "94 % of the executions end with their deadline or client: a lower limit is being tried"},
		{"control_silent", "valid_for_seconds", 1, "the controller is silent: a reduced limit applies"},
		{"initial", "none", 0, "nothing measured yet: the initial limit applies"},
		{"plan", "revision", 3, "slots by plan revision 3"},
		{"maintenance", "operator", 1, "operator 1, tighten"},
	} {
		if got := (reason{Code: c.code, Signal: c.signal, Value: c.value, Direction: "tighten"}).text(); got != c.want {
			t.Errorf("%s: %q, want %q", c.code, got, c.want)
		}
	}
	ctl := must(control.New(control.Config{}))(t)
	for _, r := range reasonsJSON(ctl.Step(monitor.Sample{}).Reasons) {
		if strings.HasSuffix(r.Text, ", "+r.Direction) {
			t.Errorf("%s has no words: %q", r.Code, r.Text)
		}
	}
}

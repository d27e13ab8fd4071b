// SPDX-License-Identifier: Apache-2.0

// Values of wardens, limiters and sets.

package wardenprom

import (
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

func readLimiter(p put, l *limiter.Limiter) {
	s := l.Stats()
	p.value("stopbank_limiter_target", float64(s.Target))
	p.value("stopbank_limiter_oldest_running_seconds", s.OldestRunning.Seconds())
	p.value("stopbank_limiter_decision_stale", truth(s.DecisionState == decision.Stale))
	p.value("stopbank_limiter_observer_panics_total", float64(s.ObserverPanics))
	for m := decision.Enforce; m <= decision.Bypass; m++ {
		p.value("stopbank_limiter_mode", truth(s.Mode == m), m.String())
	}
	for _, class := range classes() {
		t, p := s.Of(class), p.of("stopbank_limiter_", class.String())
		p.value("running", float64(t.Running))
		p.value("parked", float64(t.Parked))
		p.value("queued", float64(t.Queued))
		p.value("submitted_total", float64(t.Submitted))
		p.value("executed_total", float64(t.Executed))
		p.value("abandoned_total", float64(t.Abandoned))
		p.value("failed_total", float64(t.Failed))
		p.value("canceled_total", float64(t.Canceled))
		for _, r := range limiter.Reasons() {
			if r != decision.Canceled {
				p.value("rejected_total", float64(t.RejectedFor(r)), string(r))
			}
		}
		for _, r := range dryRunReasons() {
			p.value("would_reject_total", float64(t.WouldRejectFor(r)), string(r))
		}
	}
}

// dryRunReasons are the reasons of a dry run: those that are known when a task arrives.
func dryRunReasons() []decision.RejectionReason {
	return []decision.RejectionReason{
		decision.PressureHigh, decision.QueueOverflow, decision.NoSlot, decision.ProbabilisticShedding, decision.DeadlineExceeded,
	}
}

// classes are the values of the label priority.
func classes() []decision.Priority {
	return []decision.Priority{decision.Background, decision.Normal, decision.High, decision.Critical}
}

func readWarden(p put, w *warden.Warden) {
	readLimiter(p, w.Limiter())
	s, last := w.Stats(), w.Latest()
	p.value("stopbank_warden_samples_total", float64(s.Samples-s.ByRequests), "ticker")
	p.value("stopbank_warden_samples_total", float64(s.ByRequests), "request")
	p.value("stopbank_warden_late_samples_total", float64(s.Late))
	p.value("stopbank_warden_panics_total", float64(s.Panics))
	p.value("stopbank_warden_reentries_total", float64(s.Reentries))
	if s.Samples == 0 || last.Decision.Seq == 0 {
		return // nothing is measured yet, and 0 would be a value
	}
	d := last.Decision
	p.value("stopbank_control_decisions_total", float64(d.Seq))
	p.value("stopbank_control_decision_timestamp_seconds", float64(d.At.UnixMilli())/1000)
	p.value("stopbank_control_decision_valid_seconds", d.ValidFor.Seconds())
	p.value("stopbank_control_target", float64(d.TargetConcurrency))
	p.value("stopbank_control_shed_ratio", d.ShedProbability)
	p.value("stopbank_control_expected_execution_seconds", d.Expected.Seconds())
	for _, r := range d.Reasons {
		p.value("stopbank_control_reason", 1, r.Code())
	}
	readSample(p, last.Sample)
}

// readSample exports what was measured; the rest is missing, because it is not 0.
func readSample(p put, s monitor.Sample) {
	reading := func(metric string, r monitor.Reading) {
		if r.OK {
			p.value(metric, r.Value)
		}
	}
	reading("stopbank_monitor_utilization_ratio", s.Utilization)
	reading("stopbank_monitor_throttled_ratio", s.Throttled)
	reading("stopbank_monitor_processor_share_ratio", s.Share)
	if s.Memory.Limit > 0 {
		p.value("stopbank_monitor_memory_limit_bytes", float64(s.Memory.Limit))
	}
	if s.Memory.Live > 0 {
		p.value("stopbank_monitor_memory_live_bytes", float64(s.Memory.Live))
	}
	reading("stopbank_monitor_runnable_per_processor", s.Runnable)
	if s.Lag.Count > 0 {
		p.value("stopbank_monitor_lag_seconds", s.Lag.P90.Seconds())
	}
	for _, r := range s.Pools {
		p := p.of("stopbank_pool_", r.Name)
		if r.Problem != "" {
			p.value("unreadable", 1, r.Problem)
			continue
		}
		if r.Max > 0 {
			p.value("in_use", float64(r.InUse))
			p.value("max", float64(r.Max))
		}
		if r.Waiting.OK {
			p.value("waiting", r.Waiting.Value)
		}
	}
}

func readSet(p put, set *bulkhead.Set) {
	s := set.Snapshot()
	p.value("stopbank_bulkhead_slots", float64(s.Total))
	p.value("stopbank_bulkhead_effective_slots", float64(s.EffectiveTotal))
	p.value("stopbank_bulkhead_in_flight", float64(s.InFlight))
	p.value("stopbank_bulkhead_plan_revision", float64(s.Revision))
	p.value("stopbank_bulkhead_decision_stale", truth(s.Stale))
	p.value("stopbank_bulkhead_unknown_total", float64(s.Unknown))
	p.value("stopbank_bulkhead_observer_panics_total", float64(s.ObserverPanics))
	for i, c := range s.Compartments {
		p := p.of("stopbank_compartment_", c.Name)
		readCompartment(p, c)
		guaranteed, limit := c.Guaranteed, c.Max
		if s.Proposal != nil {
			guaranteed, limit = s.Proposal.Plan.Compartments[i].Guaranteed, s.Proposal.Plan.Compartments[i].Max
		}
		p.value("proposed_guaranteed", float64(guaranteed))
		p.value("proposed_limit", float64(limit))
	}
}

func readCompartment(p put, c bulkhead.CompartmentSnapshot) {
	for metric, n := range map[string]int{
		"in_flight": c.InFlight, "queued": c.Queued, "queue_limit": c.MaxQueue, "without_slot": c.WithoutSlot,
		"guaranteed": c.Guaranteed, "lendable": c.Lendable, "limit": c.Max, "lent": c.Lent, "borrowed": c.Borrowed,
		"effective_guaranteed": c.Effective.Guaranteed, "effective_limit": c.Effective.Max, "criticality": int(c.Criticality),
		"abandoned_running": c.Abandoned, "fallbacks_in_flight": c.FallbacksInFlight,
	} {
		p.value(metric, float64(n))
	}
	for metric, n := range map[string]uint64{
		"submitted_total": c.Submitted, "admitted_total": c.Admitted, "finished_total": c.Finished,
		"abandoned_total": c.AbandonedTotal, "late_panics_total": c.LatePanics, "degraded_total": c.Degraded,
		"fallbacks_failed_total": c.FallbacksFailed, "fallbacks_rejected_total": c.FallbacksRejected,
	} {
		p.value(metric, float64(n))
	}
	p.value("healthy", truth(c.Unhealthy == ""))
	p.value("rejection_ratio", c.RejectionRate)
	p.value("oldest_running_seconds", c.OldestRunning.Seconds())
	for _, o := range []decision.Outcome{bulkhead.Succeeded, bulkhead.Failed, bulkhead.TimedOut, decision.OutcomeCanceled,
		bulkhead.Panicked} {
		p.value("answered_total", float64(c.Outcomes[string(o)]), string(o))
	}
	reasons := func(metric string, usual []decision.RejectionReason, counted map[string]uint64) {
		for _, r := range usual { // also one that has not occurred: a rate needs a 0 to begin with
			p.value(metric, float64(counted[string(r)]), string(r))
		}
		for r, n := range counted {
			p.value(metric, float64(n), r)
		}
	}
	reasons("rejected_total", onArrival(), c.Rejected)
	reasons("left_total", later(), c.Left)
	for m := decision.Enforce; m <= decision.Bypass; m++ {
		p.value("mode", truth(c.Mode == m), m.String())
	}
	if c.Mode == decision.DryRun || len(c.WouldReject) > 0 {
		reasons("would_reject_total", append(dryRunReasons(), bulkhead.TimeoutQueued), c.WouldReject)
	}
	if t := c.Tenants; t != nil {
		p.value("tenants", float64(t.Keys))
		p.value("tenants_active", float64(t.Active))
		p.value("tenants_limit", float64(t.MaxKeys))
		p.value("tenants_evicted_total", float64(t.Evicted))
		p.value("tenants_overflowed_total", float64(t.Overflow))
	}
}

// onArrival are the reasons for which compartments reject a call when it arrives, and later those for which a call leaves the queue
// or is too late to start.
func onArrival() []decision.RejectionReason {
	return []decision.RejectionReason{
		decision.PressureHigh, decision.ProbabilisticShedding, decision.QueueOverflow, bulkhead.BreakerOpen, decision.Reentry,
	}
}

func later() []decision.RejectionReason {
	return []decision.RejectionReason{
		decision.DeadlineExceeded, decision.MaxWaitExceeded, bulkhead.TimeoutQueued, decision.PriorityDrop, decision.Canceled,
		decision.Closed,
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

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
	p("stopbank_limiter_target", float64(s.Target))
	p("stopbank_limiter_oldest_running_seconds", s.OldestRunning.Seconds())
	p("stopbank_limiter_decision_stale", truth(s.DecisionState == decision.Stale))
	p("stopbank_limiter_observer_panics_total", float64(s.ObserverPanics))
	for m := decision.Enforce; m <= decision.Bypass; m++ {
		p("stopbank_limiter_mode", truth(s.Mode == m), m.String())
	}
	for _, class := range classes() {
		t, priority := s.Of(class), class.String()
		p("stopbank_limiter_running", float64(t.Running), priority)
		p("stopbank_limiter_queued", float64(t.Queued), priority)
		p("stopbank_limiter_submitted_total", float64(t.Submitted), priority)
		p("stopbank_limiter_executed_total", float64(t.Executed), priority)
		p("stopbank_limiter_abandoned_total", float64(t.Abandoned), priority)
		p("stopbank_limiter_canceled_total", float64(t.Canceled), priority)
		for _, r := range limiter.Reasons() {
			if r != decision.Canceled {
				p("stopbank_limiter_rejected_total", float64(t.RejectedFor(r)), string(r), priority)
			}
		}
		for _, r := range dryRunReasons() {
			p("stopbank_limiter_would_reject_total", float64(t.WouldRejectFor(r)), string(r), priority)
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
	p("stopbank_warden_samples_total", float64(s.Samples-s.ByRequests), "ticker")
	p("stopbank_warden_samples_total", float64(s.ByRequests), "request")
	p("stopbank_warden_late_samples_total", float64(s.Late))
	p("stopbank_warden_panics_total", float64(s.Panics))
	p("stopbank_warden_reentries_total", float64(s.Reentries))
	if s.Samples == 0 || last.Decision.Seq == 0 {
		return // nothing is measured yet, and 0 would be a value
	}
	d := last.Decision
	p("stopbank_control_decisions_total", float64(d.Seq))
	p("stopbank_control_decision_timestamp_seconds", float64(d.At.UnixMilli())/1000)
	p("stopbank_control_decision_valid_seconds", d.ValidFor.Seconds())
	p("stopbank_control_target", float64(d.TargetConcurrency))
	p("stopbank_control_shed_ratio", d.ShedProbability)
	p("stopbank_control_expected_execution_seconds", d.Expected.Seconds())
	for _, r := range d.Reasons {
		p("stopbank_control_reason", 1, r.Code())
	}
	readSample(p, last.Sample)
}

// readSample exports what was measured; the rest is missing, because it is not 0.
func readSample(p put, s monitor.Sample) {
	reading := func(metric string, r monitor.Reading) {
		if r.OK {
			p(metric, r.Value)
		}
	}
	reading("stopbank_monitor_utilization_ratio", s.Utilization)
	reading("stopbank_monitor_throttled_ratio", s.Throttled)
	reading("stopbank_monitor_processor_share_ratio", s.Share)
	if s.Memory.Limit > 0 {
		p("stopbank_monitor_memory_limit_bytes", float64(s.Memory.Limit))
	}
	if s.Memory.Live > 0 {
		p("stopbank_monitor_memory_live_bytes", float64(s.Memory.Live))
	}
	reading("stopbank_monitor_runnable_per_processor", s.Runnable)
	if s.Lag.Count > 0 {
		p("stopbank_monitor_lag_seconds", s.Lag.P90.Seconds())
	}
	for _, r := range s.Pools {
		if r.Problem != "" {
			p("stopbank_pool_unreadable", 1, r.Name, r.Problem)
			continue
		}
		if r.Max > 0 {
			p("stopbank_pool_in_use", float64(r.InUse), r.Name)
			p("stopbank_pool_max", float64(r.Max), r.Name)
		}
		if r.Waiting.OK {
			p("stopbank_pool_waiting", r.Waiting.Value, r.Name)
		}
	}
}

func readSet(p put, set *bulkhead.Set) {
	s := set.Snapshot()
	p("stopbank_bulkhead_slots", float64(s.Total))
	p("stopbank_bulkhead_effective_slots", float64(s.EffectiveTotal))
	p("stopbank_bulkhead_in_flight", float64(s.InFlight))
	p("stopbank_bulkhead_plan_revision", float64(s.Revision))
	p("stopbank_bulkhead_decision_stale", truth(s.Stale))
	p("stopbank_bulkhead_unknown_total", float64(s.Unknown))
	p("stopbank_bulkhead_observer_panics_total", float64(s.ObserverPanics))
	for i, c := range s.Compartments {
		readCompartment(p, c)
		guaranteed, limit := c.Guaranteed, c.Max
		if s.Proposal != nil {
			guaranteed, limit = s.Proposal.Plan.Compartments[i].Guaranteed, s.Proposal.Plan.Compartments[i].Max
		}
		p("stopbank_compartment_proposed_guaranteed", float64(guaranteed), c.Name)
		p("stopbank_compartment_proposed_limit", float64(limit), c.Name)
	}
}

func readCompartment(p put, c bulkhead.CompartmentSnapshot) {
	show := func(metric string, v float64, labels ...string) {
		p("stopbank_compartment_"+metric, v, append([]string{c.Name}, labels...)...)
	}
	for metric, n := range map[string]int{
		"in_flight": c.InFlight, "queued": c.Queued, "queue_limit": c.MaxQueue, "without_slot": c.WithoutSlot,
		"guaranteed": c.Guaranteed, "lendable": c.Lendable, "limit": c.Max, "lent": c.Lent, "borrowed": c.Borrowed,
		"effective_guaranteed": c.Effective.Guaranteed, "effective_limit": c.Effective.Max, "criticality": int(c.Criticality),
		"abandoned_running": c.Abandoned, "fallbacks_in_flight": c.FallbacksInFlight,
	} {
		show(metric, float64(n))
	}
	for metric, n := range map[string]uint64{
		"submitted_total": c.Submitted, "admitted_total": c.Admitted, "finished_total": c.Finished,
		"abandoned_total": c.AbandonedTotal, "late_panics_total": c.LatePanics, "degraded_total": c.Degraded,
		"fallbacks_failed_total": c.FallbacksFailed, "fallbacks_rejected_total": c.FallbacksRejected,
	} {
		show(metric, float64(n))
	}
	show("healthy", truth(c.Unhealthy == ""))
	show("rejection_ratio", c.RejectionRate)
	show("oldest_running_seconds", c.OldestRunning.Seconds())
	for _, o := range []decision.Outcome{bulkhead.Succeeded, bulkhead.Failed, bulkhead.TimedOut, decision.OutcomeCanceled,
		bulkhead.Panicked} {
		show("answered_total", float64(c.Outcomes[string(o)]), string(o))
	}
	for _, r := range append(limiter.Reasons(), bulkhead.TimeoutQueued, bulkhead.BreakerOpen, decision.Reentry) {
		reason := string(r) // also one that has not occurred: a rate needs a 0 to begin with
		show("rejected_total", float64(c.Rejected[reason]), reason)
		show("left_total", float64(c.Left[reason]), reason)
	}
	for m := decision.Enforce; m <= decision.Bypass; m++ {
		show("mode", truth(c.Mode == m), m.String())
	}
	for _, r := range append(dryRunReasons(), bulkhead.TimeoutQueued) {
		show("would_reject_total", float64(c.WouldReject[string(r)]), string(r))
	}
	if t := c.Tenants; t != nil {
		show("tenants", float64(t.Keys))
		show("tenants_active", float64(t.Active))
		show("tenants_limit", float64(t.MaxKeys))
		show("tenants_evicted_total", float64(t.Evicted))
		show("tenants_overflowed_total", float64(t.Overflow))
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

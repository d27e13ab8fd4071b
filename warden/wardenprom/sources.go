// Values of wardens, limiters and sets.

package wardenprom

import (
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

func readLimiter(p put, l *limiter.Limiter) {
	s := l.Stats()
	p("stopbank_limiter_target", float64(s.Target))
	p("stopbank_limiter_decision_stale", truth(s.DecisionState == limiter.Stale))
	p("stopbank_limiter_observer_panics_total", float64(s.ObserverPanics))
	for m := limiter.Enforce; m <= limiter.Bypass; m++ {
		p("stopbank_limiter_mode", truth(s.Mode == m), m.String())
	}
	for _, class := range classes() {
		t, priority := s.Of(class), class.String()
		p("stopbank_limiter_running", float64(t.Running), priority)
		p("stopbank_limiter_queued", float64(t.Queued), priority)
		p("stopbank_limiter_submitted_total", float64(t.Submitted), priority)
		p("stopbank_limiter_executed_total", float64(t.Executed), priority)
		p("stopbank_limiter_canceled_total", float64(t.Canceled), priority)
		for r := limiter.PressureHigh; r <= limiter.Closed; r++ {
			if r != limiter.Canceled {
				p("stopbank_limiter_rejected_total", float64(t.RejectedFor(r)), r.String(), priority)
			}
		}
		for _, r := range dryRunReasons() {
			p("stopbank_limiter_would_reject_total", float64(t.WouldRejectFor(r)), r.String(), priority)
		}
	}
}

// dryRunReasons are the reasons of a dry run: those that are known when a task arrives.
func dryRunReasons() []limiter.Reason {
	return []limiter.Reason{
		limiter.PressureHigh, limiter.QueueOverflow, limiter.NoSlot, limiter.ProbabilisticShedding, limiter.DeadlineExceeded,
	}
}

// classes are the values of the label priority.
func classes() []limiter.Priority {
	return []limiter.Priority{limiter.Background, limiter.Normal, limiter.High, limiter.Critical}
}

func readWarden(p put, w *warden.Warden) {
	readLimiter(p, w.Limiter())
	s, last := w.Stats(), w.Latest()
	p("stopbank_warden_samples_total", float64(s.Samples-s.ByRequests), "ticker")
	p("stopbank_warden_samples_total", float64(s.ByRequests), "request")
	p("stopbank_warden_largest_sample_gap_seconds", s.LargestGap.Seconds())
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
	count := func(metric string, n uint64) { show(metric, float64(n)) }
	level := func(metric string, n int) { show(metric, float64(n)) }
	level("in_flight", c.InFlight)
	level("queued", c.Queued)
	level("queue_limit", c.MaxQueue)
	level("guaranteed", c.Guaranteed)
	level("lendable", c.Lendable)
	level("limit", c.Max)
	level("effective_guaranteed", c.EffectiveGuaranteed)
	level("effective_limit", c.EffectiveMax)
	level("lent", c.Lent)
	level("borrowed", c.Borrowed)
	level("criticality", int(c.Criticality))
	show("healthy", truth(c.Health.OK))
	show("rejection_ratio", c.RejectionRate)
	count("submitted_total", c.Submitted)
	count("admitted_total", c.Admitted)
	count("finished_total", c.Finished)
	for o := bulkhead.Succeeded; o < bulkhead.Rejected; o++ {
		show("answered_total", float64(c.Outcomes[o.String()]), o.String())
	}
	for r := limiter.PressureHigh; r <= limiter.Reentry; r++ { // a rate needs a 0 to begin with
		reason := r.String()
		show("rejected_total", float64(c.Rejected[reason]), reason)
		show("left_total", float64(c.Left[reason]), reason)
	}
	for m := limiter.Enforce; m <= limiter.Bypass; m++ {
		show("mode", truth(c.Mode == m), m.String())
	}
	level("without_slot", c.WithoutSlot)
	for _, r := range dryRunReasons() {
		show("would_reject_total", float64(c.WouldReject[r.String()]), r.String())
	}
	show("would_reject_total", float64(c.WouldReject[limiter.TimeoutQueued.String()]), limiter.TimeoutQueued.String())
	level("abandoned_running", c.Abandoned)
	count("abandoned_total", c.AbandonedTotal)
	count("late_panics_total", c.LatePanics)
	count("degraded_total", c.Degraded)
	level("fallbacks_in_flight", c.FallbacksInFlight)
	count("fallbacks_failed_total", c.FallbacksFailed)
	count("fallbacks_rejected_total", c.FallbacksRejected)
	if t := c.Tenants; t != nil {
		level("tenants", t.Keys)
		level("tenants_active", t.Active)
		level("tenants_limit", t.MaxKeys)
		count("tenants_evicted_total", t.Evicted)
		count("tenants_overflowed_total", t.Overflow)
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

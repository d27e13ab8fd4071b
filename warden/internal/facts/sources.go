// What wardens, limiters and sets say of themselves, as metrics.

package facts

import (
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// ReadLimiter says what a limiter has counted.
func ReadLimiter(p Put, name string, l *limiter.Limiter) {
	s := l.Stats()
	p("stopbank_limiter_target", float64(s.Target), name)
	p("stopbank_limiter_decision_stale", truth(s.DecisionState == decision.Stale), name)
	p("stopbank_limiter_observer_panics_total", float64(s.ObserverPanics), name)
	for m := decision.Enforce; m <= decision.Bypass; m++ {
		p("stopbank_limiter_mode", truth(s.Mode == m), name, m.String())
	}
	for _, class := range Classes() {
		t, priority := s.Of(class), class.String()
		p("stopbank_limiter_running", float64(t.Running), name, priority)
		p("stopbank_limiter_queued", float64(t.Queued), name, priority)
		p("stopbank_limiter_submitted_total", float64(t.Submitted), name, priority)
		p("stopbank_limiter_executed_total", float64(t.Executed), name, priority)
		p("stopbank_limiter_canceled_total", float64(t.Canceled), name, priority)
		for _, r := range limiter.Reasons() {
			if r != decision.Canceled {
				p("stopbank_limiter_rejected_total", float64(t.RejectedFor(r)), name, string(r), priority)
			}
		}
		for _, r := range judgements() {
			p("stopbank_limiter_would_reject_total", float64(t.WouldRejectFor(r)), name, string(r), priority)
		}
	}
}

// judgements are the reasons of a dry run: those that are known when a task comes.
func judgements() []decision.RejectionReason {
	return []decision.RejectionReason{decision.PressureHigh, decision.QueueOverflow, decision.NoSlot, decision.ProbabilisticShedding, decision.DeadlineExceeded}
}

// Classes are those of priorities, whose names are the values of the label priority.
func Classes() []decision.Priority {
	return []decision.Priority{decision.Background, decision.Normal, decision.High, decision.Critical}
}

// ReadWarden says what a warden and its limiter has counted.
func ReadWarden(p Put, name string, w *warden.Warden) {
	ReadLimiter(p, name, w.Limiter())
	s, last := w.Stats(), w.Latest()
	p("stopbank_warden_samples_total", float64(s.Samples-s.ByRequests), name, "ticker")
	p("stopbank_warden_samples_total", float64(s.ByRequests), name, "request")
	p("stopbank_warden_largest_sample_gap_seconds", s.LargestGap.Seconds(), name)
	p("stopbank_warden_panics_total", float64(s.Panics), name)
	p("stopbank_warden_reentries_total", float64(s.Reentries), name)
	if s.Samples == 0 || last.Decision.Seq == 0 {
		return // nothing was measured yet, and a 0 would say otherwise
	}
	d := last.Decision
	p("stopbank_control_decisions_total", float64(d.Seq), name)
	p("stopbank_control_decision_timestamp_seconds", float64(d.At.UnixMilli())/1000, name)
	p("stopbank_control_decision_valid_seconds", d.ValidFor.Seconds(), name)
	p("stopbank_control_target", float64(d.TargetConcurrency), name)
	p("stopbank_control_shed_ratio", d.ShedProbability, name)
	p("stopbank_control_expected_execution_seconds", d.Expected.Seconds(), name)
	for _, r := range d.Reasons {
		p("stopbank_control_reason", 1, name, r.Code())
	}
	readSample(p, name, last.Sample)
}

// readSample shows what was measured. What was not is missing, because it is not 0.
func readSample(p Put, name string, s monitor.Sample) {
	reading := func(metric string, r monitor.Reading) {
		if r.OK {
			p(metric, r.Value, name)
		}
	}
	reading("stopbank_monitor_utilization_ratio", s.Utilization)
	reading("stopbank_monitor_throttled_ratio", s.Throttled)
	reading("stopbank_monitor_runnable_per_processor", s.Runnable)
	percentile := func(metric, which string, d time.Duration) { p(metric, d.Seconds(), name, which) }
	if s.Lag.Count > 0 {
		percentile("stopbank_monitor_lag_seconds", "50", s.Lag.P50)
		percentile("stopbank_monitor_lag_seconds", "90", s.Lag.P90)
		percentile("stopbank_monitor_lag_seconds", "99", s.Lag.P99)
	}
	if s.Service.Count > 0 {
		percentile("stopbank_monitor_service_seconds", "50", s.Service.P50)
		percentile("stopbank_monitor_service_seconds", "90", s.Service.P90)
		p("stopbank_monitor_service_throughput", s.Service.Throughput, name)
		p("stopbank_monitor_service_concurrency", s.Service.Concurrency, name)
	}
	for _, r := range s.Pools {
		if r.Problem != "" {
			p("stopbank_pool_unreadable", 1, name, r.Name, r.Problem)
			continue
		}
		if r.Max > 0 {
			p("stopbank_pool_in_use", float64(r.InUse), name, r.Name)
			p("stopbank_pool_max", float64(r.Max), name, r.Name)
		}
		if r.Waiting.OK {
			p("stopbank_pool_waiting", r.Waiting.Value, name, r.Name)
		}
	}
}

// ReadSet says what a set and its compartments has counted.
func ReadSet(p Put, name string, set *bulkhead.Set) {
	s := set.Snapshot()
	p("stopbank_bulkhead_slots", float64(s.Total), name)
	p("stopbank_bulkhead_effective_slots", float64(s.EffectiveTotal), name)
	p("stopbank_bulkhead_in_flight", float64(s.InFlight), name)
	p("stopbank_bulkhead_plan_revision", float64(s.Revision), name)
	p("stopbank_bulkhead_decision_stale", truth(s.Stale), name)
	p("stopbank_bulkhead_unknown_total", float64(s.Unknown), name)
	p("stopbank_bulkhead_observer_panics_total", float64(s.ObserverPanics), name)
	for i, c := range s.Compartments {
		readCompartment(p, name, c)
		guaranteed, limit := c.Guaranteed, c.Max
		if s.Proposal != nil {
			guaranteed, limit = s.Proposal.Plan.Compartments[i].Guaranteed, s.Proposal.Plan.Compartments[i].Max
		}
		p("stopbank_compartment_proposed_guaranteed", float64(guaranteed), name, c.Name)
		p("stopbank_compartment_proposed_limit", float64(limit), name, c.Name)
	}
}

func readCompartment(p Put, set string, c bulkhead.CompartmentSnapshot) {
	show := func(metric string, v float64, labels ...string) {
		p("stopbank_compartment_"+metric, v, append([]string{set, c.Name}, labels...)...)
	}
	count := func(metric string, n uint64) { show(metric, float64(n)) }
	level := func(metric string, n int) { show(metric, float64(n)) }
	level("in_flight", c.InFlight)
	level("queued", c.Queued)
	level("queue_limit", c.MaxQueue)
	level("guaranteed", c.Guaranteed)
	level("lendable", c.Lendable)
	level("limit", c.Max)
	level("effective_guaranteed", c.Effective.Guaranteed)
	level("effective_limit", c.Effective.Max)
	level("lent", c.Lent)
	level("borrowed", c.Borrowed)
	level("criticality", int(c.Criticality))
	show("healthy", truth(c.Unhealthy == ""))
	show("rejection_ratio", c.RejectionRate)
	if c.Execution.Count > 0 {
		show("recent_execution_seconds", c.Execution.P50.Seconds(), "50")
		show("recent_execution_seconds", c.Execution.P90.Seconds(), "90")
		show("recent_execution_seconds", c.Execution.P99.Seconds(), "99")
	}
	count("submitted_total", c.Submitted)
	count("admitted_total", c.Admitted)
	count("finished_total", c.Finished)
	for _, o := range []decision.Outcome{bulkhead.Succeeded, bulkhead.Failed, bulkhead.TimedOut, decision.OutcomeCanceled, bulkhead.Panicked} {
		show("answered_total", float64(c.Outcomes[string(o)]), string(o))
	}
	for _, r := range append(limiter.Reasons(), bulkhead.TimeoutQueued, bulkhead.BreakerOpen, decision.Reentry) { // those that have not occurred as well: an increase needs something to begin from
		reason := string(r)
		show("rejected_total", float64(c.Rejected[reason]), reason)
		show("left_total", float64(c.Left[reason]), reason)
	}
	for m := decision.Enforce; m <= decision.Bypass; m++ {
		show("mode", truth(c.Mode == m), m.String())
	}
	level("without_slot", c.WithoutSlot)
	for _, r := range judgements() {
		show("would_reject_total", float64(c.WouldReject[string(r)]), string(r))
	}
	show("would_reject_total", float64(c.WouldReject[string(bulkhead.TimeoutQueued)]), string(bulkhead.TimeoutQueued))
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

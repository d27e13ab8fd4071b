// SPDX-License-Identifier: Apache-2.0

// The metrics that observers feed: histograms of times, and the decisions of ledgers.

package wardenprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// Events are the metrics that only observers can keep: histograms of the queue wait, the execution time and both together of a
// limiter ([Events.Limiter]), and of the first two of a set ([Events.Bulkhead]), and counters of the decisions of a ledger
// ([Events.Ledger]). It is a prometheus.Collector, safe for concurrent use, and must come from [NewEvents]. The histograms are
// native, with up to 160 buckets; scrapers that do not ask for native ones get 14 classic buckets from 0.5 ms to 10 s.
//
// An event allocates nothing once its labels and its histogram's bucket have occurred, but for exemplars.
type Events struct {
	limiterWait, limiterExecution, limiterResponse *prometheus.HistogramVec
	compartmentWait, compartmentExecution          *prometheus.HistogramVec
	decisions                                      *prometheus.CounterVec
}

// NewEvents returns events whose label limiter, set or ledger is name: valid UTF-8, 1 to 128 bytes. A limiter, a set and a
// ledger may share one name, and then the Events; several limiters need one each. The error is a *decision.InvalidError.
func NewEvents(name string) (*Events, error) {
	if !validLabel(name) {
		return nil, invalidName("name", name)
	}
	return &Events{
		limiterWait: histograms("stopbank_limiter_wait_seconds",
			"Queue wait of tasks, by outcome (started, rejected or canceled) and priority class.", "limiter", name, "outcome", "priority"),
		limiterExecution: histograms("stopbank_limiter_execution_seconds", "Execution time of tasks.", "limiter", name),
		limiterResponse: histograms("stopbank_limiter_response_seconds",
			"Queue wait and execution time together, by outcome (executed, failed, abandoned, rejected or canceled) and priority class.",
			"limiter", name, "outcome", "priority"),
		compartmentWait: histograms("stopbank_compartment_wait_seconds", "Queue wait of calls.", "set", name, "compartment"),
		compartmentExecution: histograms("stopbank_compartment_execution_seconds",
			"Execution time of functions, until their caller was answered.", "set", name, "compartment"),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name:        "stopbank_lease_decisions_total",
			Help:        "Decisions of the ledger, by operation and result.",
			ConstLabels: prometheus.Labels{"ledger": name},
		}, []string{"operation", "result"}),
	}, nil
}

// histograms returns a vector of histograms, both native, with bounded size, and classic.
func histograms(name, help, kind, source string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, ConstLabels: prometheus.Labels{kind: source},
		Buckets:                         []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}, labels)
}

// Limiter returns the observer of a limiter (limiter.Config.Observer). It adds exemplars to stopbank_limiter_response_seconds,
// with the ID of the task as request_id, and as trace_id as well if it has the form of one (32 lowercase hexadecimal digits):
// one of each series in 10 ms, at most, for tasks that were rejected, that took more than a second, or that are one in 128,
// drawn at random. An exemplar allocates.
func (e *Events) Limiter() limiter.Observer {
	o := &limiterEvents{execution: e.limiterExecution.WithLabelValues()}
	for i, class := range classes() { // all of them now: a rate needs a 0 to begin with
		of := func(v *prometheus.HistogramVec, outcome decision.Outcome) prometheus.Observer {
			return v.WithLabelValues(string(outcome), class.String())
		}
		c := &o.classes[i]
		c.started, c.rejected = of(e.limiterWait, decision.Started), of(e.limiterWait, decision.Rejected)
		c.canceled = of(e.limiterWait, decision.OutcomeCanceled)
		c.all.executed.Observer, c.all.abandoned.Observer = of(e.limiterResponse, decision.Executed), of(e.limiterResponse, abandoned)
		c.all.failed.Observer, c.all.rejected.Observer = of(e.limiterResponse, failed), of(e.limiterResponse, decision.Rejected)
		c.all.canceled.Observer = of(e.limiterResponse, decision.OutcomeCanceled)
	}
	return o
}

// Bulkhead returns the observer of a set (bulkhead.Config.Observer).
func (e *Events) Bulkhead() bulkhead.Observer { return (*bulkheadEvents)(e) }

// Ledger returns the observer of a ledger (lease.Config.Observer).
func (e *Events) Ledger() lease.Observer { return (*ledgerEvents)(e) }

// Describe sends all metrics.
func (e *Events) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range e.collectors() {
		c.Describe(ch)
	}
}

// Collect sends those metrics whose observers exist.
func (e *Events) Collect(ch chan<- prometheus.Metric) {
	for _, c := range e.collectors() {
		c.Collect(ch)
	}
}

func (e *Events) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		e.limiterWait, e.limiterExecution, e.limiterResponse, e.compartmentWait, e.compartmentExecution, e.decisions,
	}
}

type limiterEvents struct {
	execution prometheus.Observer
	classes   [4]classEvents // in the order of classes
}

// classEvents are the histograms of one priority class.
type classEvents struct {
	started, rejected, canceled prometheus.Observer // the wait
	all                         struct{ executed, failed, abandoned, rejected, canceled response }
}

// Beside the limiter's outcomes, those of executed tasks that had no answer, or a bad one.
const (
	abandoned decision.Outcome = "abandoned"
	failed    decision.Outcome = "failed"
)

// Observe implements limiter.Observer.
func (e *limiterEvents) Observe(event limiter.Event) {
	c := &e.classes[(int(event.Task.Priority.Class())+65)>>6] // -64, 0, 64 and 127
	switch event.Outcome {
	case decision.Started:
		c.started.Observe(event.Waited.Seconds())
	case decision.Rejected:
		c.rejected.Observe(event.Waited.Seconds())
		c.all.rejected.observe(&event, true)
	case decision.OutcomeCanceled:
		c.canceled.Observe(event.Waited.Seconds())
		c.all.canceled.observe(&event, false)
	case decision.Executed:
		e.execution.Observe(event.Took.Seconds())
		switch {
		case event.Abandoned:
			c.all.abandoned.observe(&event, false)
		case event.Failed:
			c.all.failed.observe(&event, false)
		default:
			c.all.executed.observe(&event, false)
		}
	}
}

type bulkheadEvents Events

// Observe implements bulkhead.Observer.
func (e *bulkheadEvents) Observe(event bulkhead.Event) {
	if event.Kind != bulkhead.Answered {
		return
	}
	compartment := cleanLabel(event.Limiter)
	e.compartmentWait.WithLabelValues(compartment).Observe(event.Waited.Seconds())
	if event.Outcome != decision.Rejected {
		e.compartmentExecution.WithLabelValues(compartment).Observe(event.Took.Seconds())
	}
}

type ledgerEvents Events

// Observe implements lease.Observer.
func (e *ledgerEvents) Observe(event lease.Event) {
	e.decisions.WithLabelValues(event.Op, event.Result).Inc()
}

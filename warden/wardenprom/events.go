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

// Events are the metrics that only observers can keep: histograms of the queue wait and execution times of a limiter
// ([Events.Limiter]) and of a set ([Events.Bulkhead]), and counters of the decisions of a ledger ([Events.Ledger]). It is a
// prometheus.Collector, safe for concurrent use, and must come from [NewEvents]. The histograms are native, with up to 160
// buckets; scrapers that do not ask for native ones get 14 classic buckets from 0.5 ms to 10 s.
//
// An event blocks for less than a microsecond, and allocates nothing once its labels have occurred.
type Events struct {
	limiterWait, limiterExecution         *prometheus.HistogramVec
	compartmentWait, compartmentExecution *prometheus.HistogramVec
	decisions                             *prometheus.CounterVec
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
		compartmentWait:  histograms("stopbank_compartment_wait_seconds", "Queue wait of calls.", "set", name, "compartment"),
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

// Limiter returns the observer of a limiter (limiter.Config.Observer).
func (e *Events) Limiter() limiter.Observer {
	for _, class := range classes() { // a rate needs a 0 to begin with
		for _, o := range []decision.Outcome{decision.Started, decision.Rejected, decision.OutcomeCanceled} {
			e.limiterWait.WithLabelValues(string(o), class.String())
		}
	}
	e.limiterExecution.WithLabelValues()
	return (*limiterEvents)(e)
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
	return []prometheus.Collector{e.limiterWait, e.limiterExecution, e.compartmentWait, e.compartmentExecution, e.decisions}
}

type limiterEvents Events

// Observe implements limiter.Observer.
func (e *limiterEvents) Observe(event limiter.Event) {
	switch event.Outcome {
	case decision.Started, decision.Rejected, decision.OutcomeCanceled:
		e.limiterWait.WithLabelValues(string(event.Outcome), event.Task.Priority.Class().String()).Observe(event.Waited.Seconds())
	case decision.Executed:
		e.limiterExecution.WithLabelValues().Observe(event.Took.Seconds())
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

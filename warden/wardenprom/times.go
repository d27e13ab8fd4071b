// Histograms that observers feed, at a bounded cost.

package wardenprom

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/facts"
	"github.com/stopbank/stopbank/warden/limiter"
)

// TimesConfig describes the histograms of one limiter or one set.
type TimesConfig struct {
	// Name is the value of the label limiter or set: valid UTF-8, 1 to 128 bytes.
	Name string
	// Buckets are the upper bounds of the classic buckets, in seconds, ascending, at most 50. Scrapers that do not ask for
	// native histograms get them; native ones are kept as well. nil: 14 buckets from 0.5 ms to 10 s.
	Buckets []float64
}

const mostBuckets = 50

func (cfg TimesConfig) buckets() ([]float64, error) {
	if err := checkLabel("TimesConfig.Name", cfg.Name); err != nil {
		return nil, err
	}
	if cfg.Buckets == nil {
		return []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, nil
	}
	rising := slices.IsSorted(cfg.Buckets) && len(slices.Compact(slices.Clone(cfg.Buckets))) == len(cfg.Buckets)
	if len(cfg.Buckets) > mostBuckets || !rising || slices.ContainsFunc(cfg.Buckets, func(b float64) bool { return !(b > 0) || math.IsInf(b, 0) }) {
		return nil, invalidField("TimesConfig.Buckets", fmt.Sprintf("%.200s", fmt.Sprint(cfg.Buckets)), "up to 50 finite numbers above 0, in rising order")
	}
	return slices.Clone(cfg.Buckets), nil
}

// histogram returns a vector of histograms, both native, with bounded size, and classic.
func histogram(name, help, of, is string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, ConstLabels: prometheus.Labels{of: is}, Buckets: buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}, labels)
}

// LimiterTimes keeps histograms of one limiter's queue wait and execution times. It is a limiter.Observer and a
// prometheus.Collector. Observe does not block, and allocates nothing once each outcome has occurred. It must come from
// [NewLimiterTimes].
type LimiterTimes struct {
	wait, execution *prometheus.HistogramVec
	waited          map[waited]prometheus.Observer // never written to
	executed        prometheus.Observer
}

// waited are the labels of the queue wait.
type waited struct {
	outcome decision.Outcome
	class   decision.Priority
}

// NewLimiterTimes returns histograms for limiter.Config.Observer. The error is an [*InvalidError].
func NewLimiterTimes(cfg TimesConfig) (*LimiterTimes, error) {
	buckets, err := cfg.buckets()
	if err != nil {
		return nil, err
	}
	t := &LimiterTimes{
		wait:      histogram(limiterWait, helpLimiterWait, "limiter", cfg.Name, buckets, "outcome", "priority"),
		waited:    map[waited]prometheus.Observer{},
		execution: histogram(limiterExecution, helpLimiterExecution, "limiter", cfg.Name, buckets),
	}
	for _, class := range facts.Classes() {
		for _, o := range []decision.Outcome{decision.Started, decision.Rejected, decision.OutcomeCanceled} {
			t.waited[waited{o, class}] = t.wait.WithLabelValues(string(o), class.String())
		}
	}
	t.executed = t.execution.WithLabelValues()
	return t, nil
}

// Observe implements limiter.Observer.
func (t *LimiterTimes) Observe(e limiter.Event) {
	if e.Outcome == decision.Executed {
		t.executed.Observe(e.Took.Seconds())
	} else if h, ok := t.waited[waited{e.Outcome, e.Task.Priority.Class()}]; ok {
		h.Observe(e.Waited.Seconds())
	}
}

// Describe sends both metrics.
func (t *LimiterTimes) Describe(ch chan<- *prometheus.Desc) {
	t.wait.Describe(ch)
	t.execution.Describe(ch)
}

// Collect sends both metrics.
func (t *LimiterTimes) Collect(ch chan<- prometheus.Metric) {
	t.wait.Collect(ch)
	t.execution.Collect(ch)
}

// CompartmentTimes keeps histograms of the queue wait and execution times of one set's compartments. It is a
// bulkhead.Observer and a prometheus.Collector. Observe does not block, and allocates nothing once a compartment has
// occurred. It must come from [NewCompartmentTimes].
type CompartmentTimes struct {
	wait, execution *prometheus.HistogramVec
	known           atomic.Pointer[map[string]compartmentTimes] // replaced as a whole, under mu, never written to
	mu              sync.Mutex
}

type compartmentTimes struct{ wait, execution prometheus.Observer }

// mostCompartments bounds the histograms: a set has few compartments.
const mostCompartments = 100

// NewCompartmentTimes returns histograms for bulkhead.Config.Observer. The error is an [*InvalidError].
func NewCompartmentTimes(cfg TimesConfig) (*CompartmentTimes, error) {
	buckets, err := cfg.buckets()
	if err != nil {
		return nil, err
	}
	t := &CompartmentTimes{
		wait:      histogram(compartmentWait, helpCompartmentWait, "set", cfg.Name, buckets, "compartment"),
		execution: histogram(compartmentExecution, helpCompartmentExecution, "set", cfg.Name, buckets, "compartment"),
	}
	t.known.Store(&map[string]compartmentTimes{})
	return t, nil
}

// Observe implements bulkhead.Observer.
func (t *CompartmentTimes) Observe(e bulkhead.Event) {
	if e.Kind != bulkhead.Answered {
		return
	}
	c := t.of(e.Limiter)
	c.wait.Observe(e.Waited.Seconds())
	if e.Outcome != decision.Rejected {
		c.execution.Observe(e.Took.Seconds())
	}
}

// of is the histograms of a compartment; those beyond mostCompartments share one pair.
func (t *CompartmentTimes) of(name string) compartmentTimes {
	if c, ok := (*t.known.Load())[name]; ok {
		return c
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known := *t.known.Load()
	if c, ok := known[name]; ok {
		return c
	}
	label := facts.Clean(name)
	if len(known) >= mostCompartments {
		label = "other"
		name = ""
		if c, ok := known[name]; ok {
			return c
		}
	}
	c := compartmentTimes{t.wait.WithLabelValues(label), t.execution.WithLabelValues(label)}
	next := maps.Clone(known)
	next[name] = c
	t.known.Store(&next)
	return c
}

// Describe sends both metrics.
func (t *CompartmentTimes) Describe(ch chan<- *prometheus.Desc) {
	t.wait.Describe(ch)
	t.execution.Describe(ch)
}

// Collect sends both metrics.
func (t *CompartmentTimes) Collect(ch chan<- prometheus.Metric) {
	t.wait.Collect(ch)
	t.execution.Collect(ch)
}

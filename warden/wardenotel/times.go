// Histograms that observers feed.

package wardenotel

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/facts"
	"github.com/stopbank/stopbank/warden/limiter"
)

// TimesConfig describes the histograms of one limiter or one set.
type TimesConfig struct {
	// Name is the value of the attribute stopbank.limiter.name or stopbank.set.name: valid UTF-8, 1 to 128 bytes.
	Name string
	// MeterProvider creates the instruments; nil: the global one.
	MeterProvider metric.MeterProvider
}

// durations returns two histograms. Their bounds suit seconds; a view of the SDK can make them exponential.
func durations(cfg TimesConfig, of string) (wait, execution metric.Float64Histogram, err error) {
	if !facts.Valid(cfg.Name) {
		return nil, nil, invalidField("TimesConfig.Name", fmt.Sprintf("%.140q", cfg.Name), facts.ValidNames)
	}
	meter, err := meterOf("TimesConfig", cfg.MeterProvider)
	if err != nil {
		return nil, nil, err
	}
	bounds := metric.WithExplicitBucketBoundaries(.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10)
	wait, err = meter.Float64Histogram("stopbank."+of+".wait.duration", metric.WithUnit("s"), bounds,
		metric.WithDescription("Queue wait."))
	if err != nil {
		return nil, nil, err
	}
	execution, err = meter.Float64Histogram("stopbank."+of+".execution.duration", metric.WithUnit("s"), bounds,
		metric.WithDescription("Execution time, until the slot was released or the caller was answered."))
	return wait, execution, err
}

// recorder is one series of a histogram, with what recording needs made beforehand.
type recorder struct {
	histogram metric.Float64Histogram
	options   []metric.RecordOption
}

func newRecorder(h metric.Float64Histogram, attrs ...attribute.KeyValue) recorder {
	return recorder{h, []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attrs...))}}
}

func (r recorder) record(seconds float64) {
	r.histogram.Record(context.Background(), seconds, r.options...)
}

// LimiterTimes records one limiter's queue wait and execution times. It is a limiter.Observer. Observe costs what the SDK's
// Record costs. It must come from [NewLimiterTimes].
type LimiterTimes struct {
	waited   map[waited]recorder // never written to
	executed recorder
}

// waited are the attributes of the queue wait.
type waited struct {
	outcome decision.Outcome
	class   decision.Priority
}

// NewLimiterTimes returns histograms for limiter.Config.Observer: stopbank.limiter.wait.duration, by stopbank.outcome and
// stopbank.priority, and stopbank.limiter.execution.duration. The error is an [*InvalidError], or the provider's.
func NewLimiterTimes(cfg TimesConfig) (*LimiterTimes, error) {
	wait, execution, err := durations(cfg, "limiter")
	if err != nil {
		return nil, err
	}
	name := keyOf("limiter").String(cfg.Name)
	t := &LimiterTimes{map[waited]recorder{}, newRecorder(execution, name)}
	for _, class := range facts.Classes() {
		for _, o := range []decision.Outcome{decision.Started, decision.Rejected, decision.OutcomeCanceled} {
			t.waited[waited{o, class}] = newRecorder(wait, name, keyOf("outcome").String(string(o)), keyOf("priority").String(class.String()))
		}
	}
	return t, nil
}

// Observe implements limiter.Observer.
func (t *LimiterTimes) Observe(e limiter.Event) {
	if e.Outcome == decision.Executed {
		t.executed.record(e.Took.Seconds())
	} else if r, ok := t.waited[waited{e.Outcome, e.Task.Priority.Class()}]; ok {
		r.record(e.Waited.Seconds())
	}
}

// CompartmentTimes records the queue wait and execution times of one set's compartments. It is a bulkhead.Observer. It must
// come from [NewCompartmentTimes].
type CompartmentTimes struct {
	set             attribute.KeyValue
	wait, execution metric.Float64Histogram
	known           atomic.Pointer[map[string]compartmentTimes] // replaced as a whole, under mu, never written to
	mu              sync.Mutex
}

type compartmentTimes struct{ wait, execution recorder }

// mostCompartments bounds the series: a set has few compartments.
const mostCompartments = 100

// NewCompartmentTimes returns histograms for bulkhead.Config.Observer: stopbank.compartment.wait.duration and
// stopbank.compartment.execution.duration. The error is an [*InvalidError], or the provider's.
func NewCompartmentTimes(cfg TimesConfig) (*CompartmentTimes, error) {
	wait, execution, err := durations(cfg, "compartment")
	if err != nil {
		return nil, err
	}
	t := &CompartmentTimes{set: keyOf("set").String(cfg.Name), wait: wait, execution: execution}
	t.known.Store(&map[string]compartmentTimes{})
	return t, nil
}

// Observe implements bulkhead.Observer.
func (t *CompartmentTimes) Observe(e bulkhead.Event) {
	if e.Kind != bulkhead.Answered {
		return
	}
	c := t.of(e.Limiter)
	c.wait.record(e.Waited.Seconds())
	if e.Outcome != decision.Rejected {
		c.execution.record(e.Took.Seconds())
	}
}

// of is the series of a compartment; those beyond mostCompartments share one pair.
func (t *CompartmentTimes) of(name string) compartmentTimes {
	if c, ok := (*t.known.Load())[name]; ok {
		return c
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known, label := *t.known.Load(), facts.Clean(name)
	if len(known) >= mostCompartments {
		name, label = "", "other"
	}
	if c, ok := known[name]; ok {
		return c
	}
	compartment := keyOf("compartment").String(label)
	c := compartmentTimes{newRecorder(t.wait, t.set, compartment), newRecorder(t.execution, t.set, compartment)}
	next := maps.Clone(known)
	next[name] = c
	t.known.Store(&next)
	return c
}

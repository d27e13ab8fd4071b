// Observable instruments, read at each collection.

package wardenotel

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/facts"
	"github.com/stopbank/stopbank/warden/internal/nilcheck"
	"github.com/stopbank/stopbank/warden/internal/unit"
	"github.com/stopbank/stopbank/warden/limiter"
)

// scope is the name of this instrumentation.
const scope = "github.com/stopbank/stopbank/warden/wardenotel"

// Config names the sources of [Metrics]. The keys of the maps become the attributes stopbank.warden.name and so on: each is
// valid UTF-8, 1 to 128 bytes. A warden is shown with its limiter, under one name.
type Config struct {
	Wardens     map[string]*warden.Warden
	Limiters    map[string]*limiter.Limiter
	Sets        map[string]*bulkhead.Set
	Gates       map[string]Gate
	Ledgers     map[string]Ledger
	Dispatchers map[string]Dispatcher

	// MeterProvider creates the instruments; nil: the global one.
	MeterProvider metric.MeterProvider
	// Timeout is how long a collection waits for its sources, 1 ms or more; 0: 2 s. The collection's context applies as well.
	Timeout time.Duration
}

const defaultTimeout = 2 * time.Second

// invalidField rejects a field of a Config, or an argument: the field as in Config.Limit.
func invalidField(field string, value any, allowed string) *decision.InvalidError {
	return &decision.InvalidError{Field: "wardenotel." + field, Value: value, Allowed: allowed}
}

// Metrics are registered instruments.
type Metrics struct {
	registration metric.Registration
}

// instrument is one family as OpenTelemetry has it.
type instrument struct {
	observable metric.Float64Observable
	keys       []attribute.Key
}

// New registers instruments for the sources of cfg, until Close. It starts no goroutine and reads no source yet. Use one
// Metrics per provider: values that two of them export are added up. The error is an [*InvalidError], or the provider's.
func New(cfg Config) (*Metrics, error) {
	if allowed := unit.Allowed(cfg.Timeout, unit.Network, 0, "0 (the default, 2s)"); allowed != "" {
		return nil, invalidField("Config.Timeout", cfg.Timeout, allowed)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	sources, wrong := facts.Build(facts.Config{
		Wardens: cfg.Wardens, Limiters: cfg.Limiters, Sets: cfg.Sets,
		Gates: facts.Gates(cfg.Gates), Ledgers: facts.Ledgers(cfg.Ledgers), Dispatchers: facts.Dispatchers(cfg.Dispatchers),
	})
	if wrong != nil {
		return nil, invalidField(wrong.Field, wrong.Value, wrong.Allowed)
	}
	meter, err := meterOf("Config", cfg.MeterProvider)
	if err != nil {
		return nil, err
	}
	instruments := map[string]instrument{}
	var observables []metric.Observable
	for _, f := range facts.Families() {
		i, err := instrumentOf(meter, f)
		if err != nil {
			return nil, err
		}
		instruments[f.Name] = i
		observables = append(observables, i.observable)
	}
	r, err := meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		within := cfg.Timeout
		if end, ok := ctx.Deadline(); ok {
			within = min(within, time.Until(end))
		}
		for _, values := range facts.Poll(sources, within) {
			for _, v := range values {
				i := instruments[v.Name]
				attrs := make([]attribute.KeyValue, len(v.Labels))
				for n, l := range v.Labels {
					attrs[n] = i.keys[n].String(l)
				}
				o.ObserveFloat64(i.observable, v.Value, metric.WithAttributes(attrs...))
			}
		}
		return nil
	}, observables...)
	if err != nil {
		return nil, err
	}
	return &Metrics{r}, nil
}

// Close unregisters the instruments. Closing twice does no harm.
func (m *Metrics) Close() error {
	if m == nil || m.registration == nil {
		return nil
	}
	return m.registration.Unregister()
}

func meterOf(of string, p metric.MeterProvider) (metric.Meter, error) {
	if p == nil {
		p = otel.GetMeterProvider()
	}
	if typed := nilcheck.Optional(p); typed != "" {
		return nil, invalidField(of+".MeterProvider", typed, "nil (the global one) or a provider")
	}
	return p.Meter(scope), nil
}

func instrumentOf(meter metric.Meter, f facts.Family) (i instrument, err error) {
	for _, l := range f.Labels {
		i.keys = append(i.keys, keyOf(l))
	}
	name, unit, what := nameOf(f), metric.WithUnit(f.Unit), metric.WithDescription(f.Help)
	switch f.Kind {
	case facts.Count:
		i.observable, err = meter.Float64ObservableCounter(name, unit, what)
	case facts.Amount:
		i.observable, err = meter.Float64ObservableUpDownCounter(name, unit, what)
	case facts.Level:
		i.observable, err = meter.Float64ObservableGauge(name, unit, what)
	}
	return i, err
}

// nameOf is the name of a family by OpenTelemetry's conventions: dots between the namespaces, no unit and no _total.
func nameOf(f facts.Family) string {
	name := strings.TrimSuffix(f.Name, "_total")
	if f.Unit == "s" {
		name = strings.TrimSuffix(name, "_seconds")
	}
	return strings.Replace(name, "_", ".", 2)
}

// keyOf is the attribute of a label: those that name a thing have their own namespace.
func keyOf(label string) attribute.Key {
	switch label {
	case "warden", "limiter", "set", "compartment", "gate", "ledger", "dispatcher", "partition":
		return attribute.Key("stopbank." + label + ".name")
	}
	return attribute.Key("stopbank." + label)
}

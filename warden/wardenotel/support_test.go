// What the tests share: collections by the SDK's own reader.

package wardenotel_test

import (
	"context"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// provider is a meter provider with a reader that collects when it is told to.
func provider(t testing.TB) (*sdk.MeterProvider, *sdk.ManualReader) {
	t.Helper()
	reader := sdk.NewManualReader()
	p := sdk.NewMeterProvider(sdk.WithReader(reader))
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return p, reader
}

// collection is what a reader got: values by name and attributes, as in `name{a=b}`, and the metrics by name.
type collection struct {
	metrics map[string]metricdata.Metrics
	values  map[string]float64
}

func collect(t testing.TB, r sdk.Reader) collection {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	c := collection{map[string]metricdata.Metrics{}, map[string]float64{}}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			c.metrics[m.Name] = m
			key := func(set attribute.Set) string {
				return fmt.Sprintf("%s{%s}", m.Name, set.Encoded(attribute.DefaultEncoder()))
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[float64]:
				for _, p := range data.DataPoints {
					c.values[key(p.Attributes)] = p.Value
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					c.values[key(p.Attributes)] = p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					c.values[key(p.Attributes)+" count"] = float64(p.Count)
					c.values[key(p.Attributes)+" sum"] = p.Sum
				}
			default:
				t.Errorf("%s is a %T", m.Name, data)
			}
		}
	}
	return c
}

// want checks values of a collection.
func (c collection) want(t testing.TB, values map[string]float64) {
	t.Helper()
	for key, v := range values {
		if got, ok := c.values[key]; !ok || got != v {
			t.Errorf("%s is %v (there: %v), want %v", key, got, ok, v)
		}
	}
}

// parts are a sampler and a controller that say what they are told.
type parts struct {
	sample   monitor.Sample
	decision decision.ControlDecision
}

func (p *parts) Sample() monitor.Sample                       { return p.sample }
func (p *parts) Step(monitor.Sample) decision.ControlDecision { return p.decision }

func newWarden(t testing.TB, p *parts) *warden.Warden {
	t.Helper()
	return must(warden.New(warden.Config{Sampler: p, Controller: p}))(t)
}

func newLimiter(t testing.TB, target int, o limiter.Observer) *limiter.Limiter {
	t.Helper()
	return must(limiter.New(limiter.Config{Name: "prices", Observer: o, Initial: decision.ControlDecision{Seq: 3, TargetConcurrency: target}}))(t)
}

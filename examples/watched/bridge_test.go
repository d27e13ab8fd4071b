// OpenTelemetry's Prometheus bridge exports all metrics of a registry: docs/observability.md.

package main

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	otelprom "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

// exported is an exporter that keeps what it was given last.
type exported struct{ metricdata.ResourceMetrics }

func (*exported) Temporality(metric.InstrumentKind) metricdata.Temporality {
	return metricdata.CumulativeTemporality
}

func (*exported) Aggregation(metric.InstrumentKind) metric.Aggregation {
	return metric.AggregationDefault{}
}

func (e *exported) Export(_ context.Context, all *metricdata.ResourceMetrics) error {
	e.ResourceMetrics = *all
	return nil
}

func (*exported) ForceFlush(context.Context) error { return nil }
func (*exported) Shutdown(context.Context) error   { return nil }

// served returns the registry of a warden and a set, after three tasks and three calls.
func served(t *testing.T) *prometheus.Registry {
	t.Helper()
	events, err := wardenprom.NewEvents("api")
	if err != nil {
		t.Fatal(err)
	}
	w, err := warden.New(warden.Config{Limiter: limiter.Config{Observer: events.Limiter()}})
	if err != nil {
		t.Fatal(err)
	}
	set, err := bulkhead.New(bulkhead.Config{
		Total: 1, Compartments: []bulkhead.CompartmentConfig{{Name: "reports", Guaranteed: 1}}, Observer: events.Bulkhead(),
	})
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := wardenprom.New(wardenprom.Config{
		Wardens: map[string]*warden.Warden{"api": w}, Sets: map[string]*bulkhead.Set{"api": set},
	})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	if err := wardenprom.Register(registry, metrics, events); err != nil {
		t.Fatal(err)
	}
	work := func(context.Context) (int, error) {
		time.Sleep(time.Millisecond) // a histogram needs a time
		return 0, nil
	}
	for range 3 {
		if _, err := warden.Do(t.Context(), w, warden.Task{}, work); err != nil {
			t.Fatal(err)
		}
		if _, err := bulkhead.Do(t.Context(), set.Compartment("reports"), work); err != nil {
			t.Fatal(err)
		}
	}
	return registry
}

// TestBridge: each metric of the registry is exported under its name, with its labels and values: counters as monotonic sums,
// histograms as exponential ones with all observations.
func TestBridge(t *testing.T) {
	registry, exporter := served(t), new(exported)
	bridge := otelprom.NewMetricProducer(otelprom.WithGatherer(registry))
	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(bridge))
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	if err := provider.Shutdown(t.Context()); err != nil { // exports once more
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]metricdata.Aggregation{}
	for _, scope := range exporter.ScopeMetrics {
		for _, m := range scope.Metrics {
			found[m.Name] = m.Data
		}
	}
	if len(found) < 50 || len(found) != len(families) {
		t.Errorf("%d metrics of %d are exported: %q", len(found), len(families), slices.Sorted(maps.Keys(found)))
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []attribute.KeyValue
			for _, l := range m.GetLabel() {
				labels = append(labels, attribute.String(l.GetName(), l.GetValue()))
			}
			attributes := attribute.NewSet(labels...)
			count, sum, ok := valueOf(found[f.GetName()], attributes)
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				ok = ok && sum == m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				ok = ok && (sum == m.GetGauge().GetValue() || f.GetName() == "stopbank_warden_largest_sample_gap_seconds")
			case dto.MetricType_HISTOGRAM:
				ok = ok && count == m.GetHistogram().GetSampleCount() && sum == m.GetHistogram().GetSampleSum()
			}
			if !ok {
				t.Errorf("%s%v is %d, %v; the registry has %v", f.GetName(), labels, count, sum, m)
			}
		}
	}
	api := attribute.NewSet(attribute.String("limiter", "api"))
	if count, sum, ok := valueOf(found["stopbank_limiter_execution_seconds"], api); !ok || count != 3 || sum < 0.003 {
		t.Errorf("execution times: %d, %v s in all", count, sum)
	}
	if _, ok := found["stopbank_limiter_executed_total"].(metricdata.Sum[float64]); !ok {
		t.Errorf("a counter is a %T", found["stopbank_limiter_executed_total"])
	}
	if _, ok := found["stopbank_compartment_execution_seconds"].(metricdata.ExponentialHistogram[float64]); !ok {
		t.Errorf("a histogram is a %T", found["stopbank_compartment_execution_seconds"])
	}
}

// valueOf returns the value of a series: the sum and, of a histogram, the number of observations, which are all in its buckets.
func valueOf(data metricdata.Aggregation, attributes attribute.Set) (count uint64, sum float64, ok bool) {
	one := func(points []metricdata.DataPoint[float64]) (uint64, float64, bool) {
		for _, p := range points {
			if p.Attributes.Equals(&attributes) {
				return 1, p.Value, true
			}
		}
		return 0, 0, false
	}
	switch data := data.(type) {
	case metricdata.Gauge[float64]:
		return one(data.DataPoints)
	case metricdata.Sum[float64]:
		count, sum, ok = one(data.DataPoints)
		return count, sum, ok && data.IsMonotonic && data.Temporality == metricdata.CumulativeTemporality
	case metricdata.ExponentialHistogram[float64]:
		for _, p := range data.DataPoints {
			if p.Attributes.Equals(&attributes) {
				bucketed := p.ZeroCount
				for _, n := range p.PositiveBucket.Counts {
					bucketed += n
				}
				return p.Count, p.Sum, bucketed == p.Count
			}
		}
	}
	return 0, 0, false
}

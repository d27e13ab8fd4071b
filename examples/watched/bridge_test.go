// OpenTelemetry's Prometheus bridge exports all metrics of a registry: docs/observability.md.

package main

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	otelprom "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

// exporter keeps what it was given last.
type exporter struct {
	metric.Exporter // nil
	last            metricdata.ResourceMetrics
}

func (*exporter) Temporality(metric.InstrumentKind) metricdata.Temporality {
	return metricdata.CumulativeTemporality
}

func (*exporter) Aggregation(metric.InstrumentKind) metric.Aggregation {
	return metric.AggregationDefault{}
}

func (e *exporter) Export(_ context.Context, all *metricdata.ResourceMetrics) error {
	e.last = *all
	return nil
}

func (*exporter) Shutdown(context.Context) error { return nil }

// TestBridge: each metric of the registry is exported under its name.
func TestBridge(t *testing.T) {
	events, err := wardenprom.NewEvents("api")
	if err != nil {
		t.Fatal(err)
	}
	w, err := warden.New(warden.Config{Limiter: limiter.Config{Observer: events.Limiter()}})
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := wardenprom.New(wardenprom.Config{Wardens: map[string]*warden.Warden{"api": w}})
	if err != nil {
		t.Fatal(err)
	}
	registry, exporter := prometheus.NewRegistry(), new(exporter)
	if err := wardenprom.Register(registry, metrics, events); err != nil {
		t.Fatal(err)
	}
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
	found := map[string]bool{}
	for _, scope := range exporter.last.ScopeMetrics {
		for _, m := range scope.Metrics {
			found[m.Name] = true
		}
	}
	for _, f := range families {
		if !found[f.GetName()] {
			t.Errorf("%s is not exported", f.GetName())
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

// A service's metrics: all under its name, or none.

package wardenprom_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/service"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

func TestExporter(t *testing.T) {
	for _, divided := range []bool{false, true} {
		t.Run(fmt.Sprintf("compartments: %v", divided), func(t *testing.T) {
			registry := prometheus.NewPedanticRegistry()
			cfg := service.Config{Name: "shop", Metrics: wardenprom.Exporter{Registerer: registry}.Watch}
			if divided {
				cfg.Bulkhead = bulkhead.Config{Total: 1, Compartments: []bulkhead.CompartmentConfig{{Name: "a", Guaranteed: 1}}}
			}
			s := must(service.New(cfg))(t)
			nothing := func(context.Context) (int, error) { return 0, nil }
			must(warden.Do(t.Context(), s.Warden, warden.Task{}, nothing))(t)
			want := map[string]float64{
				`stopbank_limiter_executed_total{limiter="shop",priority="normal"}`: 1,
				`stopbank_limiter_execution_seconds{limiter="shop"} count`:          1,
			}
			if divided {
				must(bulkhead.Do(t.Context(), s.Set.Compartment("a"), nothing))(t)
				want[`stopbank_compartment_finished_total{compartment="a",set="shop"}`] = 1
				want[`stopbank_compartment_execution_seconds{compartment="a",set="shop"} count`] = 1
			}
			values := scrape(t, registry).values
			for key, n := range want {
				if values[key] != n {
					t.Errorf("%s is %v", key, values[key])
				}
			}
			if _, has := values[`stopbank_bulkhead_slots{set="shop"}`]; has != divided {
				t.Errorf("metrics of a set: %v", has)
			}
		})
	}
}

func TestExporterBadInput(t *testing.T) {
	if _, err := service.New(service.Config{Name: "shop", Metrics: wardenprom.Exporter{}.Watch}); !errors.Is(err,
		decision.ErrInvalid) {
		t.Errorf("no registry: %v", err)
	}
	registry := prometheus.NewRegistry()
	metrics := wardenprom.Exporter{Registerer: registry}
	if _, _, _, err := metrics.Watch("a\xff"); !errors.Is(err, decision.ErrInvalid) {
		t.Errorf("a name that is no label: %v", err)
	}
	must(service.New(service.Config{Name: "shop", Metrics: metrics.Watch}))(t)
	before := len(must(registry.Gather())(t))
	_, err := service.New(service.Config{Name: "shop", Metrics: metrics.Watch})
	if !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		t.Errorf("a name twice: %v", err)
	}
	if after := len(must(registry.Gather())(t)); after != before {
		t.Errorf("a failed registration left %d families, there were %d", after, before)
	}
}

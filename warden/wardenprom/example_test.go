// SPDX-License-Identifier: Apache-2.0

// A service under a warden that Prometheus can scrape.

package wardenprom_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/service"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

func ExampleNew() {
	events, err := wardenprom.NewEvents("api")
	if err != nil {
		panic(err)
	}
	w, err := warden.New(warden.Config{Limiter: limiter.Config{Observer: events.Limiter()}})
	if err != nil {
		panic(err)
	}
	gate, err := admission.New(admission.Config{Limit: 8})
	if err != nil {
		panic(err)
	}
	metrics, err := wardenprom.New(wardenprom.Config{
		Wardens: map[string]*warden.Warden{"api": w},
		Gates:   map[string]*admission.Gate{"login": gate},
	})
	if err != nil {
		panic(err)
	}
	registry := prometheus.NewRegistry()
	if err := wardenprom.Register(registry, metrics, events); err != nil {
		panic(err)
	}
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	defer server.Close()

	_, _ = warden.Do(context.Background(), w, warden.Task{}, func(context.Context) (int, error) { return 1, nil })
	resp, err := http.Get(server.URL)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, "{")
		if name == "stopbank_limiter_execution_seconds_count" || name == "stopbank_admission_limit" {
			fmt.Print(line)
		}
	}
	// Output:
	// stopbank_admission_limit{gate="login"} 8
	// stopbank_limiter_execution_seconds_count{limiter="api"} 1
}

// A ledger counts its decisions.
func ExampleEvents_Ledger() {
	decisions, err := wardenprom.NewEvents("orders")
	if err != nil {
		panic(err)
	}
	ledger, err := lease.NewMemory(lease.Config{Observer: decisions.Ledger()})
	if err != nil {
		panic(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(decisions)

	for offset := range int64(2) {
		_, _ = ledger.TryAcquire(context.Background(), "ann", offset)
	}
	families, _ := registry.Gather()
	for _, m := range families[0].GetMetric() {
		for _, l := range m.GetLabel() {
			fmt.Print(l.GetName(), "=", l.GetValue(), " ")
		}
		fmt.Println(m.GetCounter().GetValue())
	}
	// Output:
	// ledger=orders operation=try_acquire result=acquired 1
	// ledger=orders operation=try_acquire result=enqueued 1
}

// A service exports all its metrics under its name.
func ExampleExporter() {
	registry := prometheus.NewRegistry()
	s, err := service.New(service.Config{Name: "shop", Metrics: wardenprom.Exporter{Registerer: registry}.Watch})
	if err != nil {
		panic(err)
	}
	s.Operators.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))

	families, _ := registry.Gather()
	for _, f := range families {
		if f.GetName() == "stopbank_limiter_mode" {
			fmt.Println(f.GetHelp())
		}
	}
	// Output: 1 for the mode in force, 0 for the others: enforce, dry_run or bypass.
}

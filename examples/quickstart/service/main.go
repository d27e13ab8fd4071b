// Service is a shop with everything that Stopbank has for an HTTP service: compartments, one of them shared by customers, under a
// warden; metrics, logs, a console, readiness, and a shutdown that loses no request.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/service"
	"github.com/stopbank/stopbank/warden/wardenhttp"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	operators := flag.String("operators", "127.0.0.1:6060", "address of console and metrics: not public")
	spread := flag.Duration("spread", 5*time.Second, "how long to serve after readiness has failed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, *addr, *operators, *spread); err != nil {
		log.Fatal(err)
	}
}

// compartment returns where a request runs. Who searches is a tenant: the customer that the API key names.
func compartment(set *bulkhead.Set, r *http.Request) *bulkhead.Compartment {
	if r.URL.Path == "/search" {
		return set.Compartment("search").Tenant(customer(r.Header.Get("X-Api-Key")))
	}
	return set.Compartment("checkout")
}

// customer returns whose key this is. Those that are nobody's are one tenant together: who invents keys has no share for each.
func customer(key string) string {
	switch key {
	case "big", "small":
		return key
	}
	return "a stranger"
}

// wait answers after a while, like a handler that asks a database.
func wait(d time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(d):
			fmt.Fprintln(w, "done")
		case <-r.Context().Done():
		}
	}
}

func run(ctx context.Context, addr, operators string, spread time.Duration) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s, err := service.New(service.Config{
		Name:    "shop",
		Metrics: wardenprom.Exporter{Registerer: registry}.Watch,
		Bulkhead: bulkhead.Config{Total: 16, Compartments: []bulkhead.CompartmentConfig{
			{Name: "checkout", Guaranteed: 10, Lendable: 4, MaxQueue: 100, Criticality: decision.Critical},
			{Name: "search", Guaranteed: 6, Max: 8, MaxQueue: 4, Tenants: bulkhead.TenantsConfig{Max: 4}},
		}},
		Compartment:   compartment,
		HTTP:          wardenhttp.Config{Timeout: 2 * time.Second},
		OperatorsAddr: operators,
		Spread:        spread,
	})
	if err != nil {
		return err
	}
	s.Operators.Handle("GET /metrics", s.Console.Guard(promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})))
	mux := http.NewServeMux()
	mux.Handle("GET /checkout", s.Handler(wait(20*time.Millisecond)))
	mux.Handle("GET /search", s.Handler(wait(50*time.Millisecond)))
	mux.Handle("GET /readyz", s.Ready)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	return s.Run(ctx, &http.Server{
		Addr: addr, Handler: mux,
		ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
	})
}

// -ops: what a replica exports to Prometheus.

package main

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

// ledgers are those of the partitions that a replica has, counted together.
type ledgers struct {
	lease.Ledger // nil: a scrape calls Held and Ready

	mu  sync.Mutex // guards all
	all map[string]lease.Ledger
}

func (l *ledgers) add(p dispatch.Partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[p.Name] = p.Ledger
}

func (l *ledgers) remove(p dispatch.Partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, p.Name)
}

// Held implements lease.Ledger.
func (l *ledgers) Held(ctx context.Context) iter.Seq2[lease.Lease, error] {
	return each(l, func(of lease.Ledger) iter.Seq2[lease.Lease, error] { return of.Held(ctx) })
}

// Ready implements lease.Ledger.
func (l *ledgers) Ready(ctx context.Context) iter.Seq2[lease.Head, error] {
	return each(l, func(of lease.Ledger) iter.Seq2[lease.Head, error] { return of.Ready(ctx) })
}

func each[T any](l *ledgers, read func(lease.Ledger) iter.Seq2[T, error]) iter.Seq2[T, error] {
	l.mu.Lock()
	all := slices.Collect(maps.Values(l.all))
	l.mu.Unlock()
	return func(yield func(T, error) bool) {
		for _, ledger := range all {
			for v, err := range read(ledger) {
				if !yield(v, err) {
					return
				}
			}
		}
	}
}

// export serves the metrics of a replica at an address until stop is called.
func export(ctx context.Context, ops string, o options, consumer *dispatch.Consumer, held *ledgers, decisions *wardenprom.Events) (
	stop func() error, err error,
) {
	collector, err := wardenprom.New(wardenprom.Config{
		Ledgers:     map[string]lease.Ledger{"orders": held},
		Dispatchers: map[string]func() []dispatch.Stats{"orders": consumer.Stats},
		Partitions:  map[string]int{"orders": o.partitions},
		Timeout:     3500 * time.Millisecond, // an engine takes its time to list the leases while it starts
	})
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	if err := wardenprom.Register(registry, collector, decisions); err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", ops)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second,
		WriteTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	go func() { _ = server.Serve(listener) }() // until Close
	fmt.Printf("metrics: http://%s/metrics\n", listener.Addr())
	return server.Close, nil
}

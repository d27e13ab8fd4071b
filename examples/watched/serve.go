// -serve: a worker whose metrics Prometheus can scrape, and whose partitions stand still from a moment on, each for a reason of
// its own.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

// faulty is a group that assigns one more partition after a while, whose ledger cannot be opened.
type faulty struct {
	alone
	after time.Duration
}

var errDown = errors.New("the ledger's server is down")

// Hold implements dispatch.Ownership.
func (f faulty) Hold(ctx context.Context, work func(context.Context, dispatch.Partition)) error {
	late := make(chan struct{})
	go func() {
		defer close(late)
		if pause(ctx, f.after) == nil {
			work(ctx, dispatch.Partition{Name: "orders-late",
				Open: func(context.Context) (dispatch.Source, lease.Ledger, error) { return nil, nil, errDown }})
		}
	}()
	err := f.alone.Hold(ctx, work)
	<-late
	return err
}

// serve processes two partitions and exports their metrics at ops, until input ends. After a while the handlers of the first
// hang.
func serve(ops string, after time.Duration, input io.Reader) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, bufio.NewReader(input))
		stop()
	}()
	group := faulty{make(alone, partitions), after}
	for i := range group.alone {
		ledger, err := lease.NewMemory(lease.Config{MaxRetries: lease.DefaultRetries})
		if err != nil {
			return err
		}
		orders := new(dispatch.Log)
		group.alone[i] = dispatch.Partition{Name: fmt.Sprint("orders-", i), Source: orders, Ledger: ledger}
		go func() {
			for n := 0; pause(ctx, 10*time.Second) == nil; n++ { // few: what waits is no backlog that would raise an alert of its own
				orders.Append(fmt.Sprint("customer-", n%7), fmt.Append(nil, i))
			}
		}()
	}
	began := time.Now()
	consumer, err := dispatch.NewConsumer(group, dispatch.Config{
		Handler: func(ctx context.Context, job dispatch.Job) error {
			if string(job.Record.Payload) == "0" && time.Since(began) > after {
				select {} // a call that has no deadline, of a server that does not answer
			}
			return pause(ctx, 10*time.Millisecond)
		},
		DeadLetter: dispatch.Discard, MaxInFlight: 64, AttemptTimeout: 20 * time.Second, DrainTimeout: time.Second,
	})
	if err != nil {
		return err
	}
	collector, err := wardenprom.New(wardenprom.Config{
		Dispatchers: map[string]func() []dispatch.Stats{"orders": consumer.Stats},
	})
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	if err := wardenprom.Register(registry, collector, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", ops)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second,
		WriteTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	defer server.Close()
	go func() { _ = server.Serve(listener) }()
	fmt.Printf("metrics: http://%s/metrics\n", listener.Addr())
	if err := consumer.Run(ctx); !errors.Is(err, dispatch.ErrDrain) { // of handlers that hang
		return err
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

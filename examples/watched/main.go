// Watched is a worker that processes two partitions, exports its dispatchers and the decisions of its ledgers to Prometheus and logs
// warnings, until its standard input ends. From a moment on its partitions stand still, each for a reason of its own, for the alerts
// to notice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

const partitions = 2

func main() {
	ops := flag.String("ops", "127.0.0.1:0", "`address` of the metrics")
	after := flag.Duration("fault-after", 0,
		"`time` from the start until handlers hang and a partition comes that cannot be opened; 0: never")
	flag.Parse()
	ctx, stop := context.WithCancel(context.Background())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
	if err := run(ctx, *ops, *after, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// alone is a consumer group whose only member owns all partitions. After a while, unless that is 0, comes one more, whose ledger
// cannot be opened.
type alone struct {
	partitions []dispatch.Partition
	after      time.Duration
}

var errDown = errors.New("the ledger's server is down")

// Hold implements dispatch.Ownership.
func (a alone) Hold(ctx context.Context, work func(context.Context, dispatch.Partition)) error {
	var each sync.WaitGroup
	for _, p := range a.partitions {
		each.Go(func() { work(ctx, p) })
	}
	each.Go(func() {
		if a.after > 0 && pause(ctx, a.after) {
			work(ctx, dispatch.Partition{Name: "orders-late",
				Open: func(context.Context) (dispatch.Source, lease.Ledger, error) { return nil, nil, errDown }})
		}
	})
	each.Wait()
	return nil
}

// run works and exports the metrics at ops until ctx ends. After a while, unless that is 0, the handlers of the first partition
// hang.
func run(ctx context.Context, ops string, after time.Duration, out io.Writer) error {
	decisions, err := wardenprom.NewEvents("orders")
	if err != nil {
		return err
	}
	group := alone{after: after}
	for i := range partitions {
		ledger, err := lease.NewMemory(lease.Config{MaxRetries: lease.DefaultRetries, Observer: decisions.Ledger()})
		if err != nil {
			return err
		}
		orders := new(dispatch.Log)
		group.partitions = append(group.partitions, dispatch.Partition{Name: fmt.Sprint("orders-", i), Source: orders, Ledger: ledger})
		go func() {
			for n := 0; ; n++ { // few: what waits is no backlog that would raise an alert of its own
				orders.Append(fmt.Sprint("customer-", n%7), fmt.Append(nil, i))
				if !pause(ctx, 10*time.Second) {
					return
				}
			}
		}()
	}
	began := time.Now()
	consumer, err := dispatch.NewConsumer(group, dispatch.Config{
		Handler: func(ctx context.Context, job dispatch.Job) error {
			if after > 0 && string(job.Record.Payload) == "0" && time.Since(began) > after {
				select {} // a call that has no deadline, of a server that does not answer
			}
			pause(ctx, 10*time.Millisecond)
			return ctx.Err()
		},
		DeadLetter: dispatch.Discard, MaxInFlight: 64, AttemptTimeout: 20 * time.Second, DrainTimeout: time.Second,
		Observer: dispatch.NewLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))),
	})
	if err != nil {
		return err
	}
	collector, err := wardenprom.New(wardenprom.Config{
		Dispatchers: map[string]func() []dispatch.Stats{"orders": consumer.Stats},
		Partitions:  map[string]int{"orders": partitions},
	})
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	if err := wardenprom.Register(registry, collector, decisions, collectors.NewGoCollector(),
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
	fmt.Fprintf(out, "metrics: http://%s/metrics\n", listener.Addr())
	if err := consumer.Run(ctx); !errors.Is(err, dispatch.ErrDrain) { // of handlers that hang
		return err
	}
	return nil
}

// pause reports whether it lasted, or ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

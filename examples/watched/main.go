// Watched processes two partitions and exports its dispatchers and ledgers: metrics to Prometheus, warnings to a log. With
// -serve it goes on, and stands still after a while, for the alerts to notice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

const partitions = 2

// alone is a consumer group whose only member owns all partitions.
type alone []dispatch.Partition

// Hold implements dispatch.Ownership.
func (a alone) Hold(ctx context.Context, work func(context.Context, dispatch.Partition)) error {
	var each sync.WaitGroup
	for _, p := range a {
		each.Go(func() { work(ctx, p) })
	}
	each.Wait()
	return nil
}

// metrics returns a collector for the dispatcher of each partition and for the ledgers.
func metrics(consumer *dispatch.Consumer, group alone) (prometheus.Collector, error) {
	ledgers := map[string]lease.Ledger{}
	for _, p := range group {
		ledgers[p.Name] = p.Ledger
	}
	return wardenprom.New(wardenprom.Config{
		Ledgers:     ledgers,
		Dispatchers: map[string]func() []dispatch.Stats{"orders": consumer.Stats},
		Partitions:  map[string]int{"orders": partitions},
	})
}

func main() {
	live := flag.Bool("serve", false, "export the metrics of two partitions until standard input ends")
	ops := flag.String("ops", "127.0.0.1:0", "with -serve: `address` of the metrics")
	after := flag.Duration("fault-after", 0,
		"with -serve: `time` from the start until handlers hang and a partition comes that cannot be opened")
	flag.Parse()
	var err error
	if *live {
		err = serve(*ops, *after, os.Stdin)
	} else {
		err = run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	registry := prometheus.NewRegistry() // a service serves it by promhttp.HandlerFor
	decisions, err := wardenprom.NewEvents("orders")
	if err != nil {
		return err
	}
	group := make(alone, partitions)
	for i := range group {
		ledger, err := lease.NewMemory(lease.Config{MaxRetries: lease.DefaultRetries, Observer: decisions.Ledger()})
		if err != nil {
			return err
		}
		orders := new(dispatch.Log)
		for _, customer := range []string{"ann", "bob", "ann"} {
			orders.Append(customer, []byte("an order"))
		}
		group[i] = dispatch.Partition{Name: fmt.Sprint("orders-", i), Source: orders, Ledger: ledger}
	}
	consumer, err := dispatch.NewConsumer(group, dispatch.Config{
		Handler: func(_ context.Context, job dispatch.Job) error {
			if job.Record.Domain == "bob" {
				return fmt.Errorf("%w: bob has moved", dispatch.ErrPermanent)
			}
			return nil
		},
		DeadLetter:  dispatch.Discard,
		CommitEvery: 10 * time.Millisecond,
		Observer:    dispatch.NewLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))),
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	collector, err := metrics(consumer, group)
	if err != nil {
		return err
	}
	if err := wardenprom.Register(registry, collector, decisions); err != nil {
		return err
	}

	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(ctx) }()
	for !done(consumer.Stats()) {
		time.Sleep(10 * time.Millisecond)
	}
	err = show(registry)
	stop()
	return errors.Join(err, <-ended)
}

// done reports whether all partitions are held and all their records committed.
func done(all []dispatch.Stats) bool {
	for _, s := range all {
		if s.Committed < 3 {
			return false
		}
	}
	return len(all) == partitions
}

// show prints the dispatchers' metrics as a scrape would return them, without zeros.
func show(registry *prometheus.Registry) error {
	families, err := registry.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "stopbank_dispatch_") {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			if v := m.GetCounter().GetValue() + m.GetGauge().GetValue(); v != 0 {
				fmt.Println(f.GetName(), strings.Join(labels, ","), v)
			}
		}
	}
	return nil
}

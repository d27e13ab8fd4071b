// The worker: a dispatcher over the stream, with a handler that fails, panics, and writes its effect in a way that a repeat or a
// late writer cannot spoil.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasenats"
)

// work runs the pipeline until all orders are done, or the process is.
func work(o options) error {
	return withServer(o, func(s *services) error { return s.pipeline(context.Background(), o) })
}

func (s *services) pipeline(ctx context.Context, o options) error {
	store, err := leasenats.Open(ctx, leasenats.Config{Conn: s.nc, Bucket: s.leases})
	if err != nil {
		return err
	}
	ledger, err := durable.New(durable.Config{Store: store, MaxRetries: 10})
	if err != nil {
		return err
	}
	source, err := leasenats.OpenSource(ctx, leasenats.SourceConfig{
		Conn: s.nc, Stream: s.stream, Bucket: s.done, Partition: "all",
		Domain: func(m jetstream.Msg) string { return strings.TrimPrefix(m.Subject(), s.subjects) },
	})
	if err != nil {
		return err
	}
	defer source.Close()
	effects, err := s.js.KeyValue(ctx, s.effects)
	if err != nil {
		return err
	}
	gate, err := admission.New(admission.Config{Name: "handlers", Limit: o.workers})
	if err != nil {
		return err
	}
	h := &handler{register: effects, crashAfter: int64(o.crashAfter)}
	d, err := dispatch.New(dispatch.Config{
		Name: "orders", Ledger: ledger, Source: source, Handler: h.handle,
		MaxInFlight: o.workers, Concurrency: gated{gate},
		Backoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond, CommitEvery: 100 * time.Millisecond,
		DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
			return fmt.Errorf("order %d was given up: %w", letter.Record.Offset, letter.Err) // none should be; the audit would miss it
		},
	})
	if err != nil {
		return err
	}

	running, stop := context.WithCancel(ctx)
	defer stop()
	result := make(chan error, 1)
	go func() { result <- d.Run(running) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		stats := d.Stats()
		fmt.Printf("%s%d\n", progress, stats.Succeeded)
		if stats.Committed > int64(o.orders) {
			break
		}
	}
	stop()
	if err := <-result; err != nil {
		return err
	}
	stats := d.Stats()
	fmt.Printf("%d succeeded, %d done before, %d retried, %d leases reclaimed; effects: %d written, %d there already, %d refused by the fence\n",
		stats.Succeeded, stats.Skipped, stats.Retried, stats.Reclaimed, h.written.Load(), h.repeated.Load(), h.refused.Load())
	return nil
}

// account is the effect of a customer's orders: the register that tokens are compared with. It is written whole, by
// compare-and-swap.
type account struct {
	Token lease.Token `json:"token"` // the greatest that has written
	Done  []effect    `json:"done"`
}

type effect struct {
	Order int64       `json:"order"`
	Token lease.Token `json:"token"`
}

type handler struct {
	register   jetstream.KeyValue
	crashAfter int64

	written, repeated, refused atomic.Int64
}

var errFenced = errors.New("a later lease has written already")

// handle fails now and then, and otherwise has its effect.
func (h *handler) handle(ctx context.Context, job dispatch.Job) error {
	if job.Lease.RetryCount == 0 {
		switch n := job.Record.Offset; {
		case n%20 == 3:
			return errors.New("the payment provider is busy")
		case n%100 == 7:
			panic("a bug that shows now and then")
		}
	}
	return h.apply(ctx, job)
}

// apply writes the effect of an order once. Three things make it so: the swap, which nobody comes between; the token, which keeps
// out whoever has lost the lease; and the last order in the account, which tells a repeat.
func (h *handler) apply(ctx context.Context, job dispatch.Job) error {
	var a account
	var revision uint64
	entry, err := h.register.Get(ctx, job.Record.Domain)
	switch {
	case err == nil:
		revision = entry.Revision()
		if err := json.Unmarshal(entry.Value(), &a); err != nil {
			return err
		}
	case !errors.Is(err, jetstream.ErrKeyNotFound):
		return err
	}
	if job.Lease.Token < a.Token {
		h.refused.Add(1)
		return errFenced
	}
	if n := len(a.Done); n > 0 && a.Done[n-1].Order >= job.Record.Offset {
		h.repeated.Add(1)
		return nil // an earlier attempt came this far, and its process died before the ledger knew
	}
	a.Token = job.Lease.Token
	a.Done = append(a.Done, effect{Order: job.Record.Offset, Token: job.Lease.Token})
	value, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if _, err := h.register.Update(ctx, job.Record.Domain, value, revision); err != nil {
		return err // also when somebody else has written: the next attempt reads it
	}
	if h.written.Add(1) == h.crashAfter {
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
			select {} // the signal is on its way
		}
	}
	return nil
}

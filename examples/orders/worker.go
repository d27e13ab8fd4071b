// A replica: a member of the group, with a handler that fails, panics, and writes its effect in a way that a repeat or a
// late writer cannot spoil.

package main

import (
	"bufio"
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
	"github.com/stopbank/stopbank/lease/leasenats"
)

// work runs a replica until standard input ends, or the process does.
func work(o options) error {
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	h := new(handler)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			h.crash.Store(true)
		}
		leave()
	}()
	return withServer(o, func(s *services) error { return s.pipeline(ctx, o, h) })
}

func (s *services) pipeline(ctx context.Context, o options, h *handler) error {
	group, err := leasenats.OpenGroup(ctx, leasenats.GroupConfig{
		Conn: s.nc, Stream: s.stream, Subject: s.subjects + "*.>", Partitions: o.partitions, Bucket: s.group, Session: o.session,
		Domain: func(m jetstream.Msg) string { return m.Subject()[strings.LastIndex(m.Subject(), ".")+1:] },
	})
	if err != nil {
		return err
	}
	if h.register, err = s.js.KeyValue(ctx, s.effects); err != nil {
		return err
	}
	gate, err := admission.New(admission.Config{Name: "handlers", Limit: o.workers})
	if err != nil {
		return err
	}
	consumer, err := dispatch.NewConsumer(group, dispatch.Config{
		Handler: h.handle, MaxInFlight: o.workers, Concurrency: gated{gate}, Observer: h,
		Backoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond, CommitEvery: 100 * time.Millisecond,
		DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
			return fmt.Errorf("order %d was given up: %w", letter.Record.Offset, letter.Err) // none should be; the audit would miss it
		},
	})
	if err != nil {
		return err
	}
	if err := consumer.Run(ctx); err != nil {
		return err
	}
	fmt.Printf("        replica %d: %d effects, %d there already, %d refused; %d retried, %d leases reclaimed, %d lost to others\n",
		o.replica, h.written.Load(), h.repeated.Load(), h.refused.Load(), h.retried.Load(), h.reclaimed.Load(), h.fenced.Load())
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
	register jetstream.KeyValue
	crash    atomic.Bool // the process kills itself behind the next effect

	written, repeated, refused atomic.Int64 // effects
	retried, reclaimed, fenced atomic.Int64 // what the dispatchers tell
}

// Observe counts. It implements dispatch.Observer.
func (h *handler) Observe(e dispatch.Event) {
	switch e.Kind {
	case dispatch.Retrying:
		h.retried.Add(1)
	case dispatch.Reclaimed:
		h.reclaimed.Add(1)
	case dispatch.Fenced:
		h.fenced.Add(1)
	default:
	}
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
	if h.written.Add(1); h.crash.Load() {
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
			select {} // the signal is on its way
		}
	}
	return nil
}

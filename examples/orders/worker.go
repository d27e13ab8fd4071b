// A replica: a member of the group whose handler fails, panics, and protects its effects against repeated attempts and
// workers that have lost their lease.

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

// drain is the time for running handlers to finish when a replica gives up a partition.
const drain = 2 * time.Second

// work runs a replica until standard input ends; each line before makes it crash after an effect.
func work(o options) error {
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	h := &handler{replica: o.replica, watched: o.ops != "", ledgers: ledgers{all: map[string]lease.Ledger{}}}
	decisions, err := wardenprom.NewEvents("orders")
	if err != nil {
		return err
	}
	o.decisions = decisions.Ledger()
	if h.faults, err = newFaults(o.fault, o.after); err != nil {
		return err
	}
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			h.crash.Store(true)
		}
		leave()
	}()
	e, err := connect(o)
	if err != nil {
		return err
	}
	defer e.close()
	group, err := e.group(ctx, o)
	if err != nil {
		return err
	}
	if h.effects, err = e.register(ctx); err != nil {
		return err
	}
	gate, err := admission.New(admission.Config{Name: "handlers", Limit: o.workers})
	if err != nil {
		return err
	}
	cfg := dispatch.Config{
		Handler: h.handle, MaxInFlight: o.workers, Concurrency: gated(gate), Observer: h,
		Backoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond, CommitEvery: 100 * time.Millisecond, DrainTimeout: drain,
		DeadLetter: h.deadLetter,
	}
	if h.watched { // as in production
		cfg.Backoff, cfg.MaxBackoff, cfg.CommitEvery = 0, 0, 0
		cfg.AttemptTimeout = 20 * time.Second
	}
	consumer, err := dispatch.NewConsumer(&announcer{Ownership: group, handler: h}, cfg)
	if err != nil {
		return err
	}
	if h.watched {
		stop, err := export(ctx, o.ops, o, consumer, &h.ledgers, decisions)
		if err != nil {
			return err
		}
		defer func() { _ = stop() }() // what a scrape misses then is of no use
	}
	if err := consumer.Run(ctx); err != nil && !(h.faults.on(handlersHang) && errors.Is(err, dispatch.ErrDrain)) {
		return err
	}
	fmt.Printf("        replica %d: %d effects, %d repeats skipped, %d stale writes rejected; %d retries, %d leases reclaimed, %d fenced; %d partitions lost\n",
		o.replica, h.written.Load(), h.repeated.Load(), h.stale.Load(), h.retried.Load(), h.reclaimed.Load(), h.fenced.Load(),
		h.lost.Load())
	return nil
}

// announcer reports the first partition to the parent, on standard output, and the first after others had been lost.
type announcer struct {
	dispatch.Ownership
	*handler
	once sync.Once
}

// again ends the line of a replica that is back.
const again = "has a partition again"

func (g *announcer) Hold(ctx context.Context, work func(context.Context, dispatch.Partition)) error {
	return g.Ownership.Hold(ctx, func(ctx context.Context, p dispatch.Partition) {
		g.once.Do(func() { fmt.Printf("        replica %d has a partition\n", g.replica) })
		if n := g.lost.Load(); n > 0 && !g.back.Swap(true) {
			fmt.Printf("        replica %d was fenced out of %d partitions, and %s\n", g.replica, n, again)
		}
		g.ledgers.add(p)
		defer g.ledgers.remove(p)
		g.faults.hold(ctx, p, work)
	})
}

type handler struct {
	replica int
	watched bool // by Prometheus: it fails by -fault alone
	effects register
	faults  *faults
	ledgers ledgers
	crash   atomic.Bool // the process kills itself after the next effect

	written, repeated, stale   atomic.Int64 // effects
	retried, reclaimed, fenced atomic.Int64 // events of the dispatchers
	lost                       atomic.Int64 // partitions that went to others while this replica believed that they were its own
	back                       atomic.Bool  // it has a partition again
}

// Observe implements dispatch.Observer.
func (h *handler) Observe(e dispatch.Event) {
	switch e.Kind {
	case dispatch.Retrying:
		h.retried.Add(1)
	case dispatch.Reclaimed:
		h.reclaimed.Add(1)
	case dispatch.Fenced:
		h.fenced.Add(1)
	case dispatch.Drained:
		if errors.Is(e.Err, dispatch.ErrLost) {
			h.lost.Add(1)
		}
	default:
	}
}

var errFenced = errors.New("stale token: a later lease has written")

// deadLetter drops what one of the faults has poisoned or refused. No other order may become a dead letter: it would be missing.
func (h *handler) deadLetter(_ context.Context, letter dispatch.DeadLetter) error {
	if (errors.Is(letter.Err, errPoison) || errors.Is(letter.Err, errRefused)) && !h.faults.on(lettersRejected) {
		return nil
	}
	return fmt.Errorf("order %d became a dead letter: %w", letter.Record.Offset, letter.Err)
}

// handle fails or panics now and then, and otherwise applies the order.
func (h *handler) handle(ctx context.Context, job dispatch.Job) error {
	order, err := strconv.ParseInt(string(job.Record.Payload), 10, 64)
	if err != nil {
		return err
	}
	if err := h.faults.handle(job, order); err != nil {
		return err
	}
	if job.Lease.RetryCount == 0 && !h.watched {
		switch {
		case order%20 == 3:
			return errors.New("the payment provider is busy")
		case order%100 == 7:
			panic("a bug that shows now and then")
		}
	}
	return h.apply(ctx, job, order)
}

// apply writes the effect of an order once. The compare-and-swap prevents lost updates, the fencing token rejects a worker that
// has lost its lease, and the last order of the account identifies repeated attempts.
func (h *handler) apply(ctx context.Context, job dispatch.Job, order int64) error {
	a, version, err := h.effects.load(ctx, job.Record.Domain)
	if err != nil {
		return err
	}
	if job.Lease.Token < a.Token {
		h.stale.Add(1)
		return errFenced
	}
	if n := len(a.Done); n > 0 && a.Done[n-1].Order >= order {
		h.repeated.Add(1)
		return nil // an earlier attempt wrote the effect, and its process died before the ledger recorded it
	}
	a.Token = job.Lease.Token
	a.Done = append(a.Done, effect{Order: order, Token: job.Lease.Token, Replica: h.replica, Back: h.back.Load()})
	if err := h.effects.swap(ctx, job.Record.Domain, a, version); err != nil {
		return err // after a conflict, the next attempt loads the new version
	}
	if h.written.Add(1); h.crash.Load() {
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
			select {} // until the signal arrives
		}
	}
	return nil
}

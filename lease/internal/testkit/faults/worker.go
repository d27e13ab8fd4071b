// SPDX-License-Identifier: Apache-2.0

// The work of a worker: the smallest orchestrator that loses nothing.

package faults

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/child"
)

// worker acquires waiting offsets, applies them in the register and completes them in the ledger.
type worker struct {
	order
	side   Side
	say    func(note)
	resume <-chan struct{}
	ledger lease.Ledger

	released bool // the lease to release was released
}

// patience bounds the retries of an engine's errors.
const patience = time.Minute

// again repeats a call until it succeeds.
func again(ctx context.Context, call func() error) error {
	return persist(ctx, call, func(err error) bool { return err != nil })
}

// insist repeats a call on a ledger until the engine answers.
func insist(ctx context.Context, call func() error) error {
	return persist(ctx, call, func(err error) bool { return errors.Is(err, durable.ErrStore) })
}

func persist(ctx context.Context, call func() error, down func(error) bool) error {
	until := time.Now().Add(patience)
	for {
		err := call()
		if !down(err) || time.Now().After(until) || ctx.Err() != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond) // the engine is down; there is no event to wait for
	}
}

func (w *worker) run(ctx context.Context) (err error) {
	if w.ledger, err = durable.New(durable.Config{Store: w.side.Store, MaxRetries: w.MaxRetries}); err != nil {
		return err
	}
	if w.TakeOver {
		if err := w.takeOver(ctx); err != nil || w.released {
			return err
		}
	}
	until := time.Now().Add(patience)
	for time.Now().Before(until) {
		heads, err := collect(ctx, w.ledger.Ready)
		if err != nil {
			return err
		}
		for _, head := range heads {
			if err := w.drain(ctx, head.Domain); err != nil || w.released {
				return err
			}
		}
		if len(heads) > 0 {
			continue
		}
		held, err := collect(ctx, w.ledger.Held)
		if err != nil {
			return err
		}
		if len(held) == 0 {
			// A lease that ended between the two reads may have left work behind.
			if heads, err = collect(ctx, w.ledger.Ready); err != nil {
				return err
			} else if len(heads) == 0 {
				return nil
			}
			continue
		}
		if w.Alone {
			return fmt.Errorf("%d leases are held, and nobody is there to hold them: %+v", len(held), held[0])
		}
		time.Sleep(2 * time.Millisecond) // other workers are busy, and the ledger sends no events
	}
	return errors.New("no end: work is waiting or held, and nobody gets it done")
}

// collect reads a walk to its end, before the caller changes the ledger.
func collect[T any](ctx context.Context, walk func(context.Context) iter.Seq2[T, error]) (all []T, err error) {
	err = insist(ctx, func() error {
		all = nil
		for item, err := range walk(ctx) {
			if err != nil {
				return err
			}
			all = append(all, item)
		}
		return nil
	})
	return all, err
}

// takeOver reclaims every lease, whose holders are presumed dead, and counts a failure of each record unless the lease was
// released.
func (w *worker) takeOver(ctx context.Context) error {
	held, err := collect(ctx, w.ledger.Held)
	if err != nil {
		return err
	}
	for _, l := range held {
		heir, ok, err := w.reclaim(ctx, l)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if l.Released {
			if err := w.handle(ctx, heir); err != nil || w.released {
				return err
			}
			continue
		}
		var f lease.Failure
		err = insist(ctx, func() (err error) { f, err = w.ledger.Fail(ctx, heir.Domain, heir.Token); return err })
		switch {
		case errors.Is(err, durable.ErrAmbiguous): // counted or not, the lease is ours unless this was the last retry
		case gone(err):
			continue
		case err != nil:
			return err
		case f.Status != lease.RetryScheduled:
			w.say(note{What: "gave up", Domain: heir.Domain, Offset: heir.Offset, Token: heir.Token})
			continue
		}
		if err := w.handle(ctx, heir); err != nil || w.released {
			return err
		}
	}
	return nil
}

// gone reports that another worker holds the lease now, or that it has ended.
func gone(err error) bool {
	return errors.Is(err, lease.ErrTokenMismatch) || errors.Is(err, lease.ErrLeaseNotFound)
}

// reclaim takes l from its holder; ok is false if another worker was faster.
func (w *worker) reclaim(ctx context.Context, l lease.Lease) (heir lease.Lease, ok bool, err error) {
	err = insist(ctx, func() (err error) { heir, err = w.ledger.Reclaim(ctx, l.Domain, l.Token); return err })
	switch {
	case errors.Is(err, durable.ErrAmbiguous):
		return w.rescue(ctx, l.Domain)
	case gone(err):
		return heir, false, nil
	case err == nil:
		w.say(note{What: "reclaimed", Domain: heir.Domain, Offset: heir.Offset, Token: heir.Token})
	}
	return heir, err == nil, err
}

// rescue looks for a lease that we may hold with an unknown token, and reclaims it.
func (w *worker) rescue(ctx context.Context, domain string) (lease.Lease, bool, error) {
	var v lease.View
	if err := insist(ctx, func() (err error) { v, err = w.ledger.Inspect(ctx, domain); return err }); err != nil ||
		v.Lease == nil {
		return lease.Lease{}, false, err
	}
	return w.reclaim(ctx, *v.Lease)
}

// drain works on a domain until nothing waits there or another worker holds it.
func (w *worker) drain(ctx context.Context, domain string) error {
	for {
		var a lease.Acquisition
		err := insist(ctx, func() (err error) { a, err = w.ledger.AcquireNext(ctx, domain); return err })
		switch {
		case errors.Is(err, durable.ErrAmbiguous):
			heir, ok, err := w.rescue(ctx, domain)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			a.Lease = heir
		case err != nil:
			return err
		case a.Status != lease.Acquired:
			return nil
		}
		if err := w.handle(ctx, a.Lease); err != nil || w.released {
			return err
		}
	}
}

// handle handles a lease: first the effect downstream, then the completion in the ledger.
func (w *worker) handle(ctx context.Context, l lease.Lease) error {
	says := note{Domain: l.Domain, Offset: l.Offset, Token: l.Token}
	say := func(what string) {
		says.What = what
		w.say(says)
	}
	say("holding")
	if w.GiveBack {
		err := insist(ctx, func() error { return w.ledger.Release(ctx, l.Domain, l.Token) })
		for errors.Is(err, durable.ErrAmbiguous) { // repeating it changes nothing
			err = insist(ctx, func() error { return w.ledger.Release(ctx, l.Domain, l.Token) })
		}
		if w.released = err == nil; w.released {
			say("released")
		}
		return err
	}
	if at := w.PauseAt; at != nil && at.Domain == l.Domain && at.Offset == l.Offset {
		<-w.resume
	}
	if at := w.Poison; at != nil && at.Domain == l.Domain && at.Offset == l.Offset {
		child.Die()
	}
	var applied bool
	err := again(ctx, func() (err error) {
		applied, err = w.side.Register.Apply(ctx, l.Domain, l.Offset, l.Token)
		return err
	})
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	if !applied {
		say("refused")
	}
	for {
		err := insist(ctx, func() error { _, err := w.ledger.Succeed(ctx, l.Domain, l.Token); return err })
		var ended *lease.LeaseNotFoundError
		switch {
		case errors.Is(err, durable.ErrAmbiguous):
			continue
		case err == nil, errors.As(err, &ended) && ended.Status == lease.AlreadyProcessed:
			if !applied {
				return fmt.Errorf("the register saw a greater token than %d, and the ledger takes it all the same: %+v",
					l.Token, l)
			}
			say("done")
		case gone(err):
			say("fenced")
		default:
			return err
		}
		return nil
	}
}

// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file makes the calls that can fail half way: of the ledger, whose reply may be lost, and of the user's functions, which
// may panic or call runtime.Goexit.

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/stopbank/stopbank/lease"
)

// succeed ends a lease. If it had ended before, by a call whose reply was lost or by the handler, that is success.
func (d *Dispatcher) succeed(l lease.Lease) (next int64, more bool, err error) {
	c, err := d.partition.Ledger.Succeed(d.ledgerCtx, l.Domain, l.Token)
	if isProcessed(err) {
		return d.head(d.ledgerCtx, l.Domain)
	}
	return c.Next, c.Status == lease.NextHint, err
}

// fail counts a failure of l. If the call before may have been applied, the ledger is asked first: the count must not be raised
// twice for one attempt.
func (d *Dispatcher) fail(ctx context.Context, l lease.Lease, maybeApplied bool) (lease.Failure, error) {
	if maybeApplied {
		v, err := d.partition.Ledger.Inspect(ctx, l.Domain)
		if err != nil {
			return lease.Failure{}, err
		}
		if v.Lease != nil && v.Lease.Token == l.Token && v.Lease.RetryCount > l.RetryCount {
			return lease.Failure{Status: lease.RetryScheduled, RetryCount: v.Lease.RetryCount}, nil
		}
	}
	return d.failure(ctx, l, d.partition.Ledger.Fail)
}

// failure calls Fail or GiveUp. If the record was given up before, by a call whose reply was lost, that is success.
func (d *Dispatcher) failure(ctx context.Context, l lease.Lease,
	call func(context.Context, string, lease.Token) (lease.Failure, error),
) (lease.Failure, error) {
	f, err := call(ctx, l.Domain, l.Token)
	if lost := (*lease.LeaseNotFoundError)(nil); errors.As(err, &lost) && lost.Status == lease.AlreadyFailed {
		next, more, err := d.head(ctx, l.Domain)
		f = lease.Failure{Status: lease.GiveUpNoBacklog, RetryCount: l.RetryCount, Next: next}
		if more {
			f.Status = lease.GiveUpNextHint
		}
		return f, err
	}
	return f, err
}

// head returns the hint of a completion whose reply was lost: the head of the domain's backlog, if there is one.
func (d *Dispatcher) head(ctx context.Context, domain string) (next int64, more bool, err error) {
	v, err := d.partition.Ledger.Inspect(ctx, domain)
	if err != nil || len(v.Backlog) == 0 {
		return 0, false, err
	}
	return v.Backlog[0], true, nil
}

// takeOverLease reclaims the lease of a former holder. A released lease continues where it was. Of any other the holder may have
// died, and the record becomes a suspect. No attempt is counted.
func (d *Dispatcher) takeOverLease(ctx context.Context, held lease.Lease) (recordState, error) {
	l, err := d.partition.Ledger.Reclaim(ctx, held.Domain, held.Token)
	if err != nil {
		return recordState{}, err
	}
	t := recordState{stage: missing, lease: l, suspect: !held.Released, released: held.Released}
	retry := l.RetryCount
	if t.suspect {
		retry++
	} else {
		d.releaseLease(ctx, l)
	}
	t.due = time.Now().Add(d.cfg.resume(l.AcquiredAt, retry))
	d.tally(&d.count.reclaimed)
	d.observeLease(l, Event{Kind: Reclaimed, RetryCount: l.RetryCount})
	return t, nil
}

// releaseLease releases l until its record is due, so that the record does not become a suspect if this process dies meanwhile.
// It is not retried: if the ledger fails, the next owner treats the record as a suspect.
func (d *Dispatcher) releaseLease(ctx context.Context, l lease.Lease) {
	err := d.partition.Ledger.Release(ctx, l.Domain, l.Token)
	if err != nil && !isFence(err) {
		d.observeUnless(ctx, Event{Kind: LedgerError, Domain: l.Domain, Offset: l.Offset, Token: l.Token, Err: err})
	}
}

// setCurrent makes the record that dom is leased for its current one.
func (d *Dispatcher) setCurrent(dom *domain) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := dom.find(dom.lease.Offset)
	if dom.gone = i < 0; dom.gone {
		dom.current = item{Record: Record{Domain: dom.name, Offset: dom.lease.Offset}}
	} else {
		dom.current = dom.queue[i]
	}
}

// handle calls the handler with the current record.
func (d *Dispatcher) handle(dom *domain) error {
	dom.began = time.Now()
	if dom.gone {
		return ErrRecordGone
	}
	job := Job{Record: dom.current.Record, Lease: dom.lease, Ledger: d.partition.Ledger}
	d.observeLease(job.Lease, Event{Kind: Started, RetryCount: job.Lease.RetryCount})
	return d.callWithTimeout(dom, func(ctx context.Context) error { return d.cfg.Handler(ctx, job) })
}

// callWithTimeout calls fn with a context that ends after AttemptTimeout. From then on, whether fn returns or not, dom's slot
// counts as overdue, and if dom was on trial, the next suspect's trial begins.
func (d *Dispatcher) callWithTimeout(dom *domain, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(d.handlerCtx, d.cfg.AttemptTimeout)
	defer cancel()
	over := time.AfterFunc(d.cfg.AttemptTimeout, func() {
		dom.owner.waiter.countOverdue(1)
		d.endTrial(dom)
	})
	defer func() {
		if !over.Stop() {
			dom.owner.waiter.countOverdue(-1)
		}
	}()
	return contained(func() error { return fn(ctx) })
}

// contained calls fn in a goroutine of its own, which a Goexit may end, and turns a panic and a Goexit into an error.
func contained(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		err := errGoexit
		defer func() {
			if value := recover(); value != nil {
				err = &PanicError{Value: value, Stack: debug.Stack()}
			}
			result <- err
		}()
		err = fn()
	}()
	return <-result
}

package dispatch

// This file makes the calls that can go wrong half way: on the ledger, whose reply may be lost, and on foreign functions, which may
// panic or leave.

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/stopbank/stopbank/lease"
)

// succeed ends a lease. Done before is done: the reply was lost, or the handler has done it.
func (d *Dispatcher) succeed(l lease.Lease) (next int64, more bool, err error) {
	c, err := d.cfg.Ledger.Succeed(d.hard, l.Domain, l.Token)
	if isProcessed(err) {
		return d.head(d.hard, l.Domain)
	}
	return c.Next, c.Status == lease.NextHint, err
}

// fail counts a failure of l. With unsure the call before may have been carried out, so the ledger is asked first: the count
// must not be raised twice for one attempt.
func (d *Dispatcher) fail(ctx context.Context, l lease.Lease, unsure bool) (lease.Failure, error) {
	if unsure {
		v, err := d.cfg.Ledger.Inspect(ctx, l.Domain)
		if err != nil {
			return lease.Failure{}, err
		}
		if v.Lease != nil && v.Lease.Token == l.Token && v.Lease.RetryCount > l.RetryCount {
			return lease.Failure{Status: lease.RetryScheduled, RetryCount: v.Lease.RetryCount}, nil
		}
	}
	return d.failure(ctx, l, d.cfg.Ledger.Fail)
}

// failure calls Fail or GiveUp. Given up before is given up: the reply was lost.
func (d *Dispatcher) failure(ctx context.Context, l lease.Lease, call func(context.Context, string, lease.Token) (lease.Failure, error)) (lease.Failure, error) {
	f, err := call(ctx, l.Domain, l.Token)
	if lost := (*lease.LeaseNotFoundError)(nil); errors.As(err, &lost) && lost.Outcome == lease.OutcomeFailed {
		next, more, err := d.head(ctx, l.Domain)
		f = lease.Failure{Status: lease.GiveUpNoBacklog, RetryCount: l.RetryCount, Next: next}
		if more {
			f.Status = lease.GiveUpNextHint
		}
		return f, err
	}
	return f, err
}

// head is the hint of a completion whose reply was lost.
func (d *Dispatcher) head(ctx context.Context, domain string) (next int64, more bool, err error) {
	v, err := d.cfg.Ledger.Inspect(ctx, domain)
	if err != nil || len(v.Backlog) == 0 {
		return 0, false, err
	}
	return v.Backlog[0], true, nil
}

// takeOverLease takes the lease of a holder that is gone. A released lease continues where it was. Of any other the holder may have died:
// it becomes a suspect. Nothing is counted.
func (d *Dispatcher) takeOverLease(ctx context.Context, held lease.Lease) (recordState, error) {
	l, err := d.cfg.Ledger.Reclaim(ctx, held.Domain, held.Token)
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
	d.observe(Event{Kind: Reclaimed, Domain: l.Domain, Offset: l.Offset, Token: l.Token, RetryCount: l.RetryCount})
	return t, nil
}

// releaseLease releases l until its record is due, so that a process that dies meanwhile does not make the record a suspect. It is not
// retried: if the ledger fails, the next owner treats the record as a suspect. A ledger with OldReaders rejects the call by configuration.
func (d *Dispatcher) releaseLease(ctx context.Context, l lease.Lease) {
	if err := d.cfg.Ledger.Release(ctx, l.Domain, l.Token); err != nil && !isFence(err) && !errors.Is(err, lease.ErrInvalid) {
		d.observeUnless(ctx, Event{Kind: LedgerError, Domain: l.Domain, Offset: l.Offset, Token: l.Token, Err: err})
	}
}

// pick finds the record that dom is leased for.
func (d *Dispatcher) pick(dom *domain) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := dom.find(dom.lease.Offset)
	if dom.gone = i < 0; dom.gone {
		dom.work = item{Record: Record{Domain: dom.name, Offset: dom.lease.Offset}}
	} else {
		dom.work = dom.queue[i]
	}
}

// handle calls the handler on the record that was picked.
func (d *Dispatcher) handle(dom *domain) error {
	dom.began = time.Now()
	if dom.gone {
		return ErrRecordGone
	}
	job := Job{Record: dom.work.Record, Lease: dom.lease, Ledger: d.cfg.Ledger}
	d.observe(Event{Kind: Started, Domain: dom.name, Offset: job.Lease.Offset, Token: job.Lease.Token, RetryCount: job.Lease.RetryCount})
	return d.bounded(dom, func(ctx context.Context) error { return d.cfg.Handler(ctx, job) })
}

// bounded calls fn with the time that an attempt has. When that is over, and whether fn listens to its context or not, dom's slot does not count
// as its partition's any more, and if dom was on trial, the next suspect's trial begins.
func (d *Dispatcher) bounded(dom *domain, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(d.handling, d.cfg.AttemptTimeout)
	defer cancel()
	over := time.AfterFunc(d.cfg.AttemptTimeout, func() {
		dom.of.line.countOverdue(1)
		d.clearSuspect(dom)
	})
	defer func() {
		if !over.Stop() {
			dom.of.line.countOverdue(-1)
		}
	}()
	return contained(func() error { return fn(ctx) })
}

// contained calls fn in a goroutine of its own, which a Goexit may take along, and makes an error of every way to end.
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

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

// succeed ends a lease. Done before is done: the reply was lost.
func (d *Dispatcher) succeed(l lease.Lease) (next int64, more bool, err error) {
	c, err := d.cfg.Ledger.Succeed(d.hard, l.Domain, l.Token)
	if lost := (*lease.LeaseNotFoundError)(nil); errors.As(err, &lost) && lost.Outcome == lease.OutcomeProcessed {
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
	f, err := d.cfg.Ledger.Fail(ctx, l.Domain, l.Token)
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

// inherit takes the lease of a holder who is gone, and counts one failure against it.
func (d *Dispatcher) inherit(ctx context.Context, held lease.Lease) (lease.Lease, lease.Failure, error) {
	l, err := d.cfg.Ledger.Reclaim(ctx, held.Domain, held.Token)
	if err != nil {
		return l, lease.Failure{}, err
	}
	var f lease.Failure
	for n := 1; ; n++ {
		if f, err = d.fail(ctx, l, n > 1); err == nil || isFence(err) || ctx.Err() != nil {
			break
		}
		wait := d.cfg.trouble(n)
		d.observe(Event{Kind: LedgerError, Domain: l.Domain, Offset: l.Offset, Token: l.Token, Err: err, Wait: wait})
		sleep(ctx, wait)
	}
	if err != nil {
		return l, f, err
	}
	l.RetryCount = f.RetryCount
	d.tally(&d.count.reclaimed)
	d.observe(Event{Kind: Reclaimed, Domain: l.Domain, Offset: l.Offset, Token: l.Token, RetryCount: l.RetryCount})
	if f.Status != lease.RetryScheduled {
		d.tally(&d.count.gaveUp)
		d.observe(Event{Kind: GaveUp, Domain: l.Domain, Offset: l.Offset, Token: l.Token, RetryCount: l.RetryCount})
	}
	return l, f, nil
}

// handle calls the handler on the record that dom is leased for.
func (d *Dispatcher) handle(dom *domain) error {
	d.mu.Lock()
	i := dom.find(dom.lease.Offset)
	if dom.gone = i < 0; dom.gone {
		dom.work = item{Record: Record{Domain: dom.name, Offset: dom.lease.Offset}}
	} else {
		dom.work = dom.queue[i]
	}
	d.mu.Unlock()
	dom.began = time.Now()
	if dom.gone {
		return ErrRecordGone
	}
	job := Job{Record: dom.work.Record, Lease: dom.lease}
	d.observe(Event{Kind: Started, Domain: dom.name, Offset: job.Lease.Offset, Token: job.Lease.Token, RetryCount: job.Lease.RetryCount})
	return contained(func() error { return d.cfg.Handler(d.handling, job) })
}

// contained calls fn in a goroutine of its own, which a Goexit may take along, and makes an error of every way to end.
func contained(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		err := ErrGoexit
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

// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file makes the calls: of the ledger and the source, and of the user's functions, which may panic or call runtime.Goexit.

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/nilcheck"
)

// call makes the call of s.
func (d *Dispatcher) call(ctx context.Context, dom *domain, s step) (a answer) {
	ledger := d.partition.Ledger
	switch s.call {
	case offer:
		a.status, a.err = ledger.Offer(ctx, dom.name, s.record.Offset)
	case tryAcquire:
		a.acquired(ledger.TryAcquire(ctx, dom.name, s.record.Offset))
	case acquireNext:
		a.acquired(ledger.AcquireNext(ctx, dom.name))
	case inspect:
		v, err := ledger.Inspect(ctx, dom.name)
		if a.err = err; v.Lease != nil {
			a.lease = *v.Lease
		}
		if len(v.Backlog) > 0 {
			a.head = mark{true, v.Backlog[0]}
		}
	case confirm:
		a.err = d.checkOwnership(d.handlerCtx)
	case reclaim:
		a.lease, a.err = ledger.Reclaim(ctx, dom.name, s.lease.Token)
	case release:
		a.err = ledger.Release(ctx, dom.name, s.lease.Token)
	case fail:
		a.failed(ledger.Fail(ctx, dom.name, s.lease.Token))
	case giveUp:
		a.failed(ledger.GiveUp(ctx, dom.name, s.lease.Token))
	case succeed:
		c, err := ledger.Succeed(ctx, dom.name, s.lease.Token)
		a = answer{err: err, head: mark{c.Status == lease.NextHint, c.Next}}
	case handle:
		a.began = time.Now()
		if a.err = s.err; a.err == nil {
			job := Job{Partition: d.partition.Name, Record: s.record, Lease: s.lease, Ledger: ledger}
			d.observeLease(job.Lease, Event{Kind: Started, RetryCount: job.Lease.RetryCount})
			a.err = d.callWithTimeout(dom, func(ctx context.Context) error { return d.cfg.Handler(ctx, job) })
		}
	case deliver:
		letter := DeadLetter{Partition: d.partition.Name, Record: s.record, Lease: s.lease, Err: s.err}
		a.err = d.callWithTimeout(dom, func(ctx context.Context) error { return d.cfg.DeadLetter(ctx, letter) })
	}
	return a
}

func (a *answer) acquired(got lease.Acquisition, err error) {
	a.err, a.status, a.lease = err, got.Status, got.Lease
}

func (a *answer) failed(f lease.Failure, err error) {
	a.err, a.status, a.retries, a.head = err, f.Status, f.RetryCount, mark{f.Status == lease.GiveUpNextHint, f.Next}
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
	return readable(<-result)
}

// readable returns err, or what can be said of an error whose methods panic, such as a nil pointer that was returned as an error:
// whoever logs it, asks what it is or keeps it in a dead letter calls them.
func readable(err error) (out error) {
	if err == nil {
		return nil
	}
	defer func() {
		switch value := recover(); {
		case value == nil:
		case nilcheck.Optional(err) != "":
			out = fmt.Errorf("dispatch: the error is %s", nilcheck.Optional(err))
		default:
			out = &PanicError{Value: fmt.Sprintf("the methods of an error of type %T panic: %v", err, value), Stack: debug.Stack()}
		}
	}()
	_, _ = err.Error(), errors.Is(err, ErrPermanent)
	return err
}

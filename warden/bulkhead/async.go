// SPDX-License-Identifier: Apache-2.0

// Running a function with a Timeout on its own goroutine, so that its caller can leave before it returns.

package bulkhead

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/stopbank/stopbank/warden/decision"
)

// A report is the result of a function.
type report[T any] struct {
	v        T
	err      error
	out      decision.Outcome
	panicked *PanicError // with out Panicked; nil: runtime.Goexit
}

// runAsync runs fn and waits until it has returned or ctx has ended, whichever comes first. The state of the call decides once
// which of the two it was, so there is one answer, and the breaker gets one result.
func runAsync[T any](made call, fn func(context.Context) (T, error)) (T, error) {
	k := &made
	ctx, cancel := context.WithTimeout(k.mark, k.within)
	reports := make(chan report[T], 1)
	go func() {
		defer cancel()
		runAndReport(ctx, k, fn, reports)
	}()
	select {
	case r := <-reports:
		return r.deliver(k)
	case <-ctx.Done():
	}
	if !k.become(abandoned) {
		r := <-reports
		return r.deliver(k)
	}
	var zero T
	out, err := k.classify(ctx, ctx.Err())
	k.abandon(out, err)
	return zero, err
}

// runAndReport calls fn, gives the slot back, and reports the result if the caller still waits.
func runAndReport[T any](ctx context.Context, k *call, fn func(context.Context) (T, error), reports chan<- report[T]) {
	r := report[T]{out: Panicked, err: errGoexit}
	defer func() {
		if r.out == Panicked {
			if v := recover(); v != nil {
				r.err, r.panicked = errPanicked, &PanicError{v, debug.Stack()}
			}
		}
		if !k.become(ended) {
			k.endAbandoned(r.err, r.panicked)
			return
		}
		defer func() {
			if v := recover(); v != nil { // the breaker has panicked
				r.out, r.panicked = Panicked, &PanicError{v, debug.Stack()}
			}
			k.returnSlot(endedEarly(r.out), func(n *counts) { n.countAnswer(r.out) })
			reports <- r
		}()
		if r.out != Panicked {
			r.out, r.err = k.classify(ctx, r.err)
		}
		k.reportToBreaker(r.out, r.err)
	}()
	v, err := fn(ctx)
	r.v, r.err, r.out = v, err, Failed // the outcome, unless classify finds another
}

// deliver returns the result to the caller, as if the function had been called on its goroutine.
func (r *report[T]) deliver(k *call) (T, error) {
	if r.out != Panicked {
		k.observeAnswer(r.out, r.err)
		return r.v, r.err
	}
	k.observeAnswer(Panicked, nil)
	if r.panicked == nil {
		runtime.Goexit()
	}
	panic(r.panicked) //nolint:forbidigo // it is the function's own, and the caller's to handle
}

// abandon answers the caller with err while the function still runs.
func (k *call) abandon(out decision.Outcome, err error) {
	s, n := k.pool.set, &k.pool.counts
	s.mu.Lock()
	n.countAnswer(out)
	n.abandoned++
	n.abandonedNow++
	s.mu.Unlock()
	defer func() {
		k.observeAnswer(out, err)
		k.observe(Event{Kind: Abandoned, Err: err})
	}()
	k.reportToBreaker(out, err)
}

// endAbandoned ends an abandoned call whose function has returned or panicked after all. No caller waits for the result.
func (k *call) endAbandoned(err error, panicked *PanicError) {
	e := Event{Kind: Returned, Err: err, Took: k.began.soFar(k.pool.set)}
	k.returnSlot(err != nil, func(n *counts) {
		n.abandonedNow--
		if panicked != nil {
			n.latePanics++
		}
	})
	if panicked != nil { // only the observer learns of it; formatting the value runs foreign methods, so the slot is released before
		e.Err, e.Stack = fmt.Errorf("%w: %v", err, panicked.Value), panicked.Stack
	}
	k.observe(e)
}

// observe passes an event of this call to the observer.
func (k *call) observe(e Event) {
	k.c.observe(k.Context, e)
}

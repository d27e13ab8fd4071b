// Running a function on a goroutine of its own, so that its caller need not wait for it longer than Timeout.

package bulkhead

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

// A report is how a function ended.
type report[T any] struct {
	v        T
	err      error
	out      Outcome
	panicked *PanicError // with out Panicked; nil: runtime.Goexit
}

// apart runs fn and waits until it has returned or ctx has ended, whichever comes first. Which of the two it was, is
// decided once, by the state of the call: so there is one answer, and one verdict for the breaker.
func apart[T any](made call, fn func(context.Context) (T, error)) (T, error) {
	k := &made
	ctx, cancel := context.WithTimeout(k.mark, k.part.config.Timeout)
	reports := make(chan report[T], 1)
	go func() {
		defer cancel()
		run(ctx, k, fn, reports)
	}()
	select {
	case r := <-reports:
		return r.pass(k)
	case <-ctx.Done():
	}
	if !k.become(abandoned) {
		r := <-reports
		return r.pass(k)
	}
	var zero T
	out, err := k.judge(ctx, ctx.Err())
	k.abandon(out, err)
	return zero, err
}

// run calls fn, and reports how it ended when the place has been given back, if the caller still waits.
func run[T any](ctx context.Context, k *call, fn func(context.Context) (T, error), reports chan<- report[T]) {
	r := report[T]{out: Panicked, err: errGoexit}
	defer func() {
		if r.out == Panicked {
			if v := recover(); v != nil {
				r.err, r.panicked = errPanicked, &PanicError{v, debug.Stack()}
			}
		}
		if !k.become(ended) {
			k.comeBack(r.err, r.panicked)
			return
		}
		defer func() {
			if v := recover(); v != nil { // the breaker has panicked
				r.out, r.panicked = Panicked, &PanicError{v, debug.Stack()}
			}
			k.leave(func(n *counts) { n.outcomes[r.out]++ })
			reports <- r
		}()
		if r.out != Panicked {
			r.out, r.err = k.judge(ctx, r.err)
		}
		k.tell(r.err)
	}()
	v, err := fn(ctx)
	r.v, r.err, r.out = v, err, Failed // or whatever it is judged to be
}

// pass tells the caller how the function ended, as if it had been called here.
func (r *report[T]) pass(k *call) (T, error) {
	if r.out != Panicked {
		k.answered(r.out, r.err)
		return r.v, r.err
	}
	k.answered(Panicked, nil)
	if r.panicked == nil {
		runtime.Goexit()
	}
	panic(r.panicked) //nolint:forbidigo // it is the function's own, and the caller's to handle
}

// abandon ends the wait of a caller, who is told err, for a function that still runs.
func (k *call) abandon(out Outcome, err error) {
	s, n := k.part.set, &k.part.counts
	s.mu.Lock()
	n.outcomes[out]++
	n.abandoned++
	n.abandonedNow++
	s.mu.Unlock()
	defer func() {
		k.answered(out, err)
		k.observe(Event{Kind: Abandoned, Err: err})
	}()
	k.tell(err)
}

// comeBack ends a call that was abandoned, of a function that has returned or panicked after all. Nobody waits for that.
func (k *call) comeBack(err error, panicked *PanicError) {
	e := Event{Kind: Returned, Err: err, Took: k.began.soFar(k.part.set)}
	k.leave(func(n *counts) {
		n.abandonedNow--
		if panicked != nil {
			n.latePanics++
		}
	})
	if panicked != nil { // nobody else is told what it was; to write it runs its own methods, so the place comes first
		e.Err, e.Stack = fmt.Errorf("%w: %v", err, panicked.Value), panicked.Stack
	}
	k.observe(e)
}

// observe tells the observer an event of this call.
func (k *call) observe(e Event) {
	k.c.observe(k.Context, e)
}

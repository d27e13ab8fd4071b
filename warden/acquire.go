// Running under a warden: the limiter's calls, timed for the monitor.

package warden

import (
	"context"

	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Permit is one place held by one task. It is a small value, free to copy and to release from any goroutine: all copies
// together release once. The zero Permit releases nothing.
type Permit struct {
	permit limiter.Permit
	span   monitor.Span
}

// Release ends the task, tells the monitor how long it took, and reports true to exactly one caller: the first. It does not
// block and allocates nothing.
func (p Permit) Release() bool {
	if !p.permit.Release() {
		return false
	}
	p.span.End()
	return true
}

// Discard is Release for a task whose time says nothing about the service: a connection that was taken over, a client
// that went away.
func (p Permit) Discard() bool {
	if !p.permit.Release() {
		return false
	}
	p.span.Discard()
	return true
}

// Explain says by what right the task was started, how long it had waited, and under which decision. It is valid until the
// permit is released.
func (p Permit) Explain() limiter.Explanation { return p.permit.Explain() }

// Acquire lets the caller run, at once or after waiting, or returns a [*Rejection]; a nil ctx is a [*limiter.InvalidError]. Who
// gets the permit must release it, whatever happens: defer p.Release(). It blocks and allocates as [limiter.Limiter.Acquire] does, and takes a sample
// if one is overdue, for which it needs some microseconds and a few allocations.
func (w *Warden) Acquire(ctx context.Context, t Task) (Permit, error) {
	if err := w.watch(); err != nil {
		return Permit{}, err
	}
	p, err := w.limiter.Acquire(ctx, t)
	if err != nil {
		return Permit{}, err
	}
	return Permit{p, w.recorder.Start()}, nil
}

// TryAcquire is Acquire for a task that may not wait.
func (w *Warden) TryAcquire(t Task) (Permit, error) {
	if err := w.watch(); err != nil {
		return Permit{}, err
	}
	p, err := w.limiter.TryAcquire(t)
	if err != nil {
		return Permit{}, err
	}
	return Permit{p, w.recorder.Start()}, nil
}

// Do runs fn(ctx) once it was granted a place, and gives the place back when fn returns, panics or calls runtime.Goexit;
// a panic is not recovered. The error is fn's own; or that of [Warden.Acquire], and fn was not called; or an
// [*InvalidError] if fn or w is nil.
func Do[T any](ctx context.Context, w *Warden, t Task, fn func(context.Context) (T, error)) (T, error) {
	var zero T
	switch {
	case w == nil:
		return zero, &InvalidError{"w", "nil", "a warden made by New"}
	case fn == nil:
		return zero, &InvalidError{"fn", "nil", "a function"}
	}
	p, err := w.Acquire(ctx, t)
	if err != nil {
		return zero, err
	}
	defer p.Release()
	return fn(ctx)
}

// Watch takes a sample if one is overdue, as Acquire does first of all. It is for requests that this warden rules without giving
// them places: those in the compartments that its decisions go to (Config.Also).
func (w *Warden) Watch() { _ = w.watch() }

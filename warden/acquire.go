// Running under a warden: the limiter's calls, timed for the monitor.

package warden

import (
	"context"

	"github.com/stopbank/stopbank/warden/internal/requestid"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Permit is one place held by one task. It is a small value, free to copy and to release from any goroutine: all copies
// together release once. The zero Permit releases nothing.
type Permit struct {
	permit limiter.Permit
	span   monitor.Span
	mark   *mark // nil: the task has no context
}

// Release ends the task, tells the monitor how long it took, and reports true to exactly one caller: the first. It does not
// block and allocates nothing.
func (p Permit) Release() bool {
	if !p.release() {
		return false
	}
	p.span.End()
	return true
}

// Discard is Release for a task whose time says nothing about the service: a connection that was taken over, a client
// that went away.
func (p Permit) Discard() bool {
	if !p.release() {
		return false
	}
	p.span.Discard()
	return true
}

func (p Permit) release() bool {
	if !p.permit.Release() {
		return false
	}
	if p.mark != nil {
		p.mark.ended.Store(true)
	}
	return true
}

// Explain says by what right the task was started, how long it had waited, and under which decision. It is valid until the
// permit is released.
func (p Permit) Explain() limiter.Explanation { return p.permit.Explain() }

// Acquire lets the caller run, at once or after waiting, and returns a permit and the context to go on with: it is ctx, and knows
// the task's priority and ID and that w has given it a place, until that is given back. A task of priority [Normal] has that of ctx, see
// [WithPriority], and one without an ID that of ctx, see [WithRequestID]. Who gets the permit must release it, whatever happens: defer p.Release().
//
// The error is a [*Rejection]; a [*ReentryError] at once, if ctx is that of work which has a place in w already, since that could
// wait for itself for ever; or an [*InvalidError] if ctx or w is nil. The context is ctx then. Acquire blocks as
// [limiter.Limiter.Acquire] does, allocates the context, of 48 bytes, and takes a sample if one is overdue, for which it needs some
// microseconds and a few allocations.
func (w *Warden) Acquire(ctx context.Context, t Task) (context.Context, Permit, error) {
	if err := w.watch(); err != nil {
		return ctx, Permit{}, err
	}
	if ctx == nil {
		return nil, Permit{}, &InvalidError{"ctx", "nil", "a context"}
	}
	if w.Holds(ctx) {
		w.reentries.Add(1)
		return ctx, Permit{}, &ReentryError{Limiter: w.name}
	}
	if t.Priority == Normal {
		t.Priority = PriorityFrom(ctx)
	}
	if t.ID == "" {
		t.ID = requestid.From(ctx)
	}
	p, err := w.limiter.Acquire(ctx, t)
	if err != nil {
		return ctx, Permit{}, err
	}
	m := &mark{Context: ctx, warden: w, id: t.ID, priority: t.Priority}
	return m, Permit{p, w.recorder.Start(), m}, nil
}

// TryAcquire is Acquire for a task that may not wait. It knows no context, so the task has the priority that it says, and may have a
// second place.
func (w *Warden) TryAcquire(t Task) (Permit, error) {
	if err := w.watch(); err != nil {
		return Permit{}, err
	}
	p, err := w.limiter.TryAcquire(t)
	if err != nil {
		return Permit{}, err
	}
	return Permit{p, w.recorder.Start(), nil}, nil
}

// Do runs fn once it was granted a place, with the context of [Warden.Acquire], and gives the place back when fn returns, panics or
// calls runtime.Goexit; a panic is not recovered. The error is fn's own; or that of Acquire, and fn was not called; or an
// [*InvalidError] if fn is nil. It blocks and allocates as Acquire does.
//
// Work that fn hands to other goroutines has fn's place while fn runs, and is refused a second one. What is to outlive fn, or needs a
// place of its own, is to have a context that does not come from fn's.
func Do[T any](ctx context.Context, w *Warden, t Task, fn func(context.Context) (T, error)) (T, error) {
	var zero T
	if fn == nil {
		return zero, &InvalidError{"fn", "nil", "a function"}
	}
	ctx, p, err := w.Acquire(ctx, t)
	if err != nil {
		return zero, err
	}
	defer p.Release()
	return fn(ctx)
}

// Watch takes a sample if one is overdue, as Acquire does first of all. It is for requests that this warden rules without giving
// them places: those in the compartments that its decisions go to (Config.Also).
func (w *Warden) Watch() { _ = w.watch() }

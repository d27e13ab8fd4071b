// The answer instead of the answer.

package bulkhead

import (
	"context"
	"time"
)

// DoOr is Do with a fallback, which is called on the caller's goroutine, outside the compartment, when the call was
// refused, timed out, found the breaker open, or fn returned an error. It is not called when the caller's context has ended,
// fn panicked, the compartment is unknown or is re-entered by this call, or MaxFallback fallbacks run already: then the cause is
// returned. cause is the error that Do would have returned; what fallback returns is the answer. A panic of fallback reaches
// the caller.
func DoOr[T any](ctx context.Context, c *Compartment, fn func(context.Context) (T, error),
	fallback func(ctx context.Context, cause error) (T, error),
) (T, error) {
	if fallback == nil {
		var zero T
		return zero, &InvalidError{"fallback", "nil", "a function"}
	}
	v, called, err := attempt(ctx, c, fn)
	if err == nil || c == nil || !called && misused(err) || !c.fallsBack(ctx, err) {
		return v, err
	}
	answered := false
	defer func() { c.fellBack(answered, err) }()
	v, err = fallback(ctx, err)
	answered = err == nil
	return v, err
}

// misused is whether Do has refused a call that nobody should have made. From fn, the same errors are those of another call,
// and so a failure of fn.
func misused(err error) bool {
	switch err.(type) { //nolint:errorlint // not what a breaker says either
	case *InvalidError, *ReentryError:
		return true
	}
	return false
}

// fallsBack decides whether a fallback may run, and counts it.
func (c *Compartment) fallsBack(ctx context.Context, cause error) bool {
	due, bounded := ctx.Deadline()
	if ctx.Err() != nil || bounded && !time.Now().Before(due) { // the context's timer may be late
		return false
	}
	t := &c.part.tally
	for n := t.fallbacks.Load(); n < int64(c.part.config.MaxFallback); n = t.fallbacks.Load() {
		if t.fallbacks.CompareAndSwap(n, n+1) {
			return true
		}
	}
	t.fallbacksRefused.Add(1)
	c.part.set.observe(Event{Kind: FallbackFailed, Compartment: c.part.config.Name, Tenant: c.key, Err: cause})
	return false
}

// fellBack counts how a fallback has ended: err is its error.
func (c *Compartment) fellBack(answered bool, err error) {
	t, e := &c.part.tally, Event{Kind: Degraded, Compartment: c.part.config.Name, Tenant: c.key, Err: err}
	t.fallbacks.Add(-1)
	if answered {
		t.degraded.Add(1)
	} else {
		e.Kind = FallbackFailed
		t.fallbacksFailed.Add(1)
	}
	c.part.set.observe(e)
}

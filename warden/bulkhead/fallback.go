// The answer instead of the answer.

package bulkhead

import (
	"context"
	"time"
)

// DoOr is Do with a fallback, which is called on the caller's goroutine, outside the compartment, when the call was
// refused, timed out, found the breaker open, or fn returned an error. It is not called when the caller's context has ended,
// fn panicked, the compartment is unknown or is re-entered by this call, or MaxFallback fallbacks run already: then the cause is
// returned. cause is the error that Do would have returned; what fallback returns is the answer. A fallback that is meant for some
// errors only returns all others as they came: if errors.Is(cause, ErrNotFound) { return zero, cause }. A panic of fallback
// reaches the caller.
func DoOr[T any](ctx context.Context, c *Compartment, fn func(context.Context) (T, error),
	fallback func(ctx context.Context, cause error) (T, error),
) (T, error) {
	if fallback == nil {
		var zero T
		return zero, &InvalidError{"fallback", "nil", "a function"}
	}
	v, called, err := attempt(ctx, c, fn)
	if err == nil || !c.known() || !called && misused(err) || !c.fallsBack(ctx, err) {
		return v, err
	}
	answered := false
	defer func() { c.fellBack(ctx, answered, err) }()
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
	s := c.part.set
	s.mu.Lock()
	n := &c.part.counts
	ok := n.fallbacks < c.part.config.MaxFallback
	if ok {
		n.fallbacks++
	} else {
		n.fallbacksRefused++
	}
	s.mu.Unlock()
	if !ok {
		c.observe(ctx, Event{Kind: FallbackFailed, Err: cause})
	}
	return ok
}

// fellBack counts how a fallback has ended: err is its error.
func (c *Compartment) fellBack(ctx context.Context, answered bool, err error) {
	s, n, kind := c.part.set, &c.part.counts, Degraded
	s.mu.Lock()
	n.fallbacks--
	if answered {
		n.degraded++
	} else {
		kind = FallbackFailed
		n.fallbacksFailed++
	}
	s.mu.Unlock()
	c.observe(ctx, Event{Kind: kind, Err: err})
}

// Fallbacks: another answer for a call that failed.

package bulkhead

import (
	"context"
	"time"
)

// DoOr is Do with a fallback. DoOr calls fallback on the caller's goroutine, outside the compartment, when the call was
// rejected, timed out, found the breaker open, or fn returned an error. fallback gets the error that Do would have returned
// as cause, and its result is the answer. To handle some errors only, return the others unchanged: if errors.Is(cause,
// ErrNotFound) { return zero, cause }.
//
// DoOr returns cause without calling fallback if the caller's context has ended, the compartment is unknown or reentered by
// this call, or MaxFallback fallbacks are running. A panic of fn or of fallback reaches the caller, and after one of fn there
// is no fallback.
func DoOr[T any](ctx context.Context, c *Compartment, fn func(context.Context) (T, error),
	fallback func(ctx context.Context, cause error) (T, error),
) (T, error) {
	if fallback == nil {
		var zero T
		return zero, &InvalidError{"fallback", "nil", "a function"}
	}
	v, called, err := attempt(ctx, c, fn)
	if err == nil || !c.known() || !called && misused(err) || !c.reserveFallback(ctx, err) {
		return v, err
	}
	answered := false
	defer func() { c.fellBack(ctx, answered, err) }()
	v, err = fallback(ctx, err)
	answered = err == nil
	return v, err
}

// misused reports whether Do rejected an incorrect call. Returned by fn, the same errors belong to another call and count as
// a failure of fn.
func misused(err error) bool {
	switch err.(type) { //nolint:errorlint // not what a breaker says either
	case *InvalidError, *ReentryError:
		return true
	}
	return false
}

// reserveFallback reserves one of the MaxFallback fallbacks, or counts its rejection.
func (c *Compartment) reserveFallback(ctx context.Context, cause error) bool {
	due, bounded := ctx.Deadline()
	if ctx.Err() != nil || bounded && !time.Now().Before(due) { // the context's timer may be late
		return false
	}
	s := c.pool.set
	s.mu.Lock()
	n := &c.pool.counts
	ok := n.fallbacks < c.pool.config.MaxFallback
	if ok {
		n.fallbacks++
	} else {
		n.fallbacksRejected++
	}
	s.mu.Unlock()
	if !ok {
		c.observe(ctx, Event{Kind: FallbackFailed, Err: cause})
	}
	return ok
}

// fellBack counts the end of a fallback whose error is err.
func (c *Compartment) fellBack(ctx context.Context, answered bool, err error) {
	s, n, kind := c.pool.set, &c.pool.counts, Degraded
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

// SPDX-License-Identifier: Apache-2.0

// Fallbacks: another answer for a call that failed.

package bulkhead

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
)

// Fallback is a compartment's answer to calls of [Do] that fail. It comes from [FallbackOf].
type Fallback interface{ ofType() reflect.Type }

type fallbackOf[T any] func(ctx context.Context, cause error) (T, error)

func (fallbackOf[T]) ofType() reflect.Type { return reflect.TypeFor[T]() }

// FallbackOf returns a Fallback for calls whose result is a T: a Do of another type is an error, whether it fails or not, so that
// the mistake shows before the incident. f is called as [DoOr] calls its fallback.
func FallbackOf[T any](f func(ctx context.Context, cause error) (T, error)) Fallback {
	return fallbackOf[T](f)
}

// doOr is Do in a compartment with a Fallback.
func doOr[T any](ctx context.Context, c *Compartment, fn func(context.Context) (T, error)) (v T, err error) {
	fallback, ok := c.pool.config.Fallback.(fallbackOf[T])
	if !ok {
		return v, invalidField(
			fmt.Sprintf("Do: the result of fn in %q", c.pool.config.Name), reflect.TypeFor[T](),
			fmt.Sprintf("%v, as of the compartment's Fallback; or call DoOr", c.pool.config.Fallback.ofType()),
		)
	}
	return DoOr(ctx, c, fn, fallback)
}

// DoOr is Do with a fallback, which replaces the compartment's. DoOr calls fallback on the caller's goroutine, outside the
// compartment, when the call was rejected, timed out, found the breaker open, or fn returned an error. fallback gets the error
// that Do would have returned as cause, and its result is the answer. To handle some errors only, return the others unchanged:
// if errors.Is(cause, ErrNotFound) { return zero, cause }.
//
// DoOr returns cause without calling fallback if the caller's context has ended, the compartment is unknown or reentered by
// this call, or MaxFallback fallbacks are running. A panic of fn or of fallback reaches the caller, and after one of fn there
// is no fallback.
func DoOr[T any](ctx context.Context, c *Compartment, fn func(context.Context) (T, error),
	fallback func(ctx context.Context, cause error) (T, error),
) (T, error) {
	if fallback == nil {
		var zero T
		return zero, invalidField("fallback", "nil", "a function")
	}
	v, called, err := attempt(ctx, c, fn)
	if err == nil || !c.exists() || !called && misused(err) {
		return v, err
	}
	return fallBack(ctx, c, v, err, fallback)
}

// RunFallback calls fallback for work that failed with cause, the error of its [Compartment.Acquire] or of the work itself, under
// the rules of [DoOr], and returns its error; cause if it was not called. Release the work's permit before.
func (c *Compartment) RunFallback(ctx context.Context, cause error, fallback func(ctx context.Context, cause error) error) error {
	switch {
	case !c.exists() || cause == nil || misused(cause):
		return cause
	case ctx == nil:
		return invalidField("ctx", "nil", "a context")
	case fallback == nil:
		return invalidField("fallback", "nil", "a function")
	}
	_, err := fallBack(ctx, c, struct{}{}, cause, func(ctx context.Context, cause error) (struct{}, error) {
		return struct{}{}, fallback(ctx, cause)
	})
	return err
}

// fallBack calls fallback for a call that returned v and cause, if it may.
func fallBack[T any](
	ctx context.Context, c *Compartment, v T, cause error, fallback func(ctx context.Context, cause error) (T, error),
) (_ T, err error) {
	if !c.reserveFallback(ctx, cause) {
		return v, cause
	}
	answered := false
	err = cause
	defer func() { c.fellBack(ctx, answered, err) }()
	v, err = fallback(ctx, cause)
	answered = err == nil
	return v, err
}

// misused reports whether Do rejected an incorrect call. Returned by fn, the same errors belong to another call and count as
// a failure of fn.
func misused(err error) bool {
	switch err.(type) { //nolint:errorlint // not what a breaker says either
	case *decision.InvalidError, *decision.ReentryError:
		return true
	}
	return false
}

// reserveFallback reserves one of the MaxFallback fallbacks, or counts its rejection.
func (c *Compartment) reserveFallback(ctx context.Context, cause error) bool {
	due, _, bounded := timelimit.Due(ctx)
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

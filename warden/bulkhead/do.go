// SPDX-License-Identifier: Apache-2.0

// Running a function in a compartment.

package bulkhead

import (
	"context"
	"errors"
)

// Errors passed to the breaker for a function that did not return normally, and causes of a rejection by the breaker.
var (
	errPanicked = errors.New("bulkhead: the function panicked")
	errGoexit   = errors.New("bulkhead: the function ended its goroutine")
	errNoAnswer = errors.New("Allow did not return")
	errOpen     = errors.New("open, and no slot was free")
)

// Do runs fn in c: it waits for a slot, asks the breaker, and calls fn with a context that marks the slot as held. Without a
// Timeout, fn runs on the caller's goroutine; with one, on its own, and a panic or runtime.Goexit of fn reaches the caller as
// long as the caller waits. After the Timeout fn may go on: let it use nothing that is reused when the caller returns, such as
// the body of a request.
//
// The error is fn's own; or a [*decision.Rejection], a [*TimeoutError], a [*decision.ReentryError], [ErrUnknownCompartment],
// the context's error if it ended while fn ran with a Timeout, or an [*decision.InvalidError] if ctx or fn is nil. In a
// compartment with a Fallback, Do is [DoOr] with it. Without breaker, timeouts and waiting, Do makes one allocation.
func Do[T any](ctx context.Context, c *Compartment, fn func(context.Context) (T, error)) (T, error) {
	if c.exists() && c.pool.config.Fallback != nil {
		return doOr(ctx, c, fn)
	}
	v, _, err := attempt(ctx, c, fn)
	return v, err
}

// attempt is Do, and reports whether fn was called.
func attempt[T any](ctx context.Context, c *Compartment, fn func(context.Context) (T, error)) (v T, called bool, err error) {
	switch {
	case !c.exists():
		return v, false, c.unknownError()
	case ctx == nil:
		return v, false, invalidField("ctx", "nil", "a context")
	case fn == nil:
		return v, false, invalidField("fn", "nil", "a function")
	}
	var k call
	if err := c.begin(ctx, &k); err != nil {
		c.observeRejection(ctx, err)
		return v, false, err
	}
	k.madeFor(ctx)
	if k.within > 0 {
		v, err = runAsync(k, fn)
	} else {
		v, err = runInline(&k, fn)
	}
	return v, true, err
}

// runInline runs fn on the caller's goroutine.
func runInline[T any](k *call, fn func(context.Context) (T, error)) (v T, err error) {
	out, result := Panicked, errPanicked
	defer func() { k.end(result, out, err) }()
	v, err = fn(k.mark)
	out, err = k.classify(k.mark, err)
	result = err
	return v, err
}

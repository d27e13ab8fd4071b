// SPDX-License-Identifier: Apache-2.0

// Deadlines that an untrusted client chose, and what outgoing requests are told.

package timelimit

import (
	"context"
	"errors"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// strangerError is the cause of a context that ended at an untrusted client's own deadline. It matches context.Canceled, as
// if the client had disconnected, and never DeadlineExceeded: net/http and others return causes as errors, and breakers and
// passive health checks take a DeadlineExceeded for the failure of what was asked.
type strangerError struct{}

func (strangerError) Error() string        { return "the client's own deadline has passed" }
func (strangerError) Is(target error) bool { return target == context.Canceled }

// ErrStranger is the cause, and the error of an answer of others that came too late for the client's own deadline.
var ErrStranger error = strangerError{}

// TimeIsUp reports whether the cause of a context's end is a deadline, an untrusted client's included.
func TimeIsUp(cause error) bool {
	return errors.Is(cause, context.DeadlineExceeded) || Strangers(cause)
}

// Strangers reports whether the cause of a context's end is an untrusted client's own deadline.
func Strangers(cause error) bool { return errors.Is(cause, ErrStranger) }

// Slack is how much later than a deadline that an untrusted client has given the parent, which does not move, a context says that its
// Deadline is. Dialers and drivers set timers of their own to it, whose errors say that the dependency was too slow: the context has
// ended long before.
const Slack = time.Second

// Due returns when ctx ends at the latest, as of now, which outgoing requests are told. strangers: that is an untrusted client's
// time. A context with a deadline of its own may not end with its request any more (context.WithoutCancel), so its own counts alone;
// one without asks the request's context for it, or is no child of it.
func Due(ctx context.Context) (due time.Time, strangers, bounded bool) {
	due, whose, bounded := dueOf(ctx)
	return due, whose >= Stranger, bounded
}

func dueOf(ctx context.Context) (due time.Time, whose Whose, bounded bool) {
	c := Of(ctx)
	if c == nil {
		due, bounded = ctx.Deadline()
		return due, Service, bounded
	}
	before := c.asked.Load()
	if due, bounded = ctx.Deadline(); c.asked.Load() == before {
		return due, Service, bounded
	}
	due, whose, bounded = dueOf(c.parent)
	if at, ends := c.until(); ends && (!bounded || !due.Before(at)) {
		due, whose, bounded = at, c.whose, true
	}
	return due, whose, bounded
}

// Moving returns [Due] of a context that comes from a request whose time may move; false: there is none, or it has no end.
func Moving(ctx context.Context) (due time.Time, strangers, bounded bool) {
	if Of(ctx) == nil {
		return due, false, false
	}
	return Due(ctx)
}

// Blameless says in a rejection in ctx for want of time that it was an untrusted client's own, which was [TooShort].
func Blameless(ctx context.Context, err error) {
	var r *decision.Rejection
	if !errors.As(err, &r) || r.Reason != decision.DeadlineExceeded {
		return
	}
	r.Cause = ErrStranger
	shorten(ctx)
}

// shorten says that an untrusted client's time in ctx was [TooShort].
func shorten(ctx context.Context) {
	for c := Of(ctx); c != nil; c = c.outer {
		if c.Strangers() {
			c.short.Store(true)
		}
	}
}

// Told returns ctx with the Deadline that a request sent with it tells the other side: [Due] of what a client told, which stays his.
func Told(ctx context.Context) context.Context {
	if due, whose, _ := dueOf(ctx); whose != Service {
		return told{ctx, New(ctx, nil, whose, due, 0, nil)}
	}
	return ctx
}

// told is a context with a time that is never started.
type told struct {
	context.Context
	time *Context
}

func (t told) Deadline() (time.Time, bool) {
	t.time.asked.Add(1)
	return t.time.due, true
}

func (t told) Value(key any) any {
	if key == (contextKey{}) {
		return t.time
	}
	return t.Context.Value(key)
}

// TooLate reports whether an answer that comes now, and says that the time was up, says it of an untrusted client's own time, which
// whoever was asked was told, and which is up at that time; zero: they were told none. foreseen: the answer says that too little
// time was left. If so, the time of ctx was [TooShort].
func TooLate(ctx context.Context, at time.Time, foreseen bool) bool {
	if at.IsZero() || !foreseen && time.Now().Before(at) {
		return false
	}
	shorten(ctx)
	for c := Of(ctx); c != nil; c = c.outer {
		if c.Strangers() && c.timer != nil {
			c.Expire() // the answer may be faster than the timer
		}
	}
	return true
}

// TooShort reports whether an untrusted client has given itself too little time for all that its request asked, or that is up.
func TooShort(ctx context.Context) bool { return Of(ctx).Short() }

// Short is [TooShort] of the context, or of none.
func (c *Context) Short() bool {
	for ; c != nil; c = c.outer {
		if c.short.Load() {
			return true
		}
	}
	return false
}

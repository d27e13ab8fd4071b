// SPDX-License-Identifier: Apache-2.0

// A deadline that an untrusted client chose.

package slot

import (
	"context"
	"errors"
	"time"
)

// clientDeadlineError is the cause of a context that ended at an untrusted client's own deadline. It matches context.Canceled, as
// if the client had disconnected, and never DeadlineExceeded: net/http and others return causes as errors, and breakers and
// passive health checks take a DeadlineExceeded for the failure of what was asked.
type clientDeadlineError struct{}

func (clientDeadlineError) Error() string        { return "the client's own deadline has passed" }
func (clientDeadlineError) Is(target error) bool { return target == context.Canceled }

// ErrOwnDeadline is the cause, and the error of an answer of others that came too late for the client's own deadline.
var ErrOwnDeadline error = clientDeadlineError{}

// TimeIsUp reports whether the cause of a context's end is a deadline, an untrusted client's included.
func TimeIsUp(cause error) bool {
	return errors.Is(cause, context.DeadlineExceeded) || OwnDeadline(cause)
}

// OwnDeadline reports whether the cause of a context's end is an untrusted client's own deadline.
func OwnDeadline(cause error) bool { return errors.Is(cause, ErrOwnDeadline) }

// Slack is how much later than an untrusted client's deadline the context of its request says that its Deadline is, and what a
// library in the handler may read in a header. Dialers and drivers set timers of their own to it, whose errors say that the
// dependency was too slow: the context has ended long before.
const Slack = time.Second

// clientDeadline is a context that is canceled at an untrusted client's own deadline.
type clientDeadline struct {
	context.Context
	due     time.Time // the client's deadline
	own     time.Time // the service's own; zero: none
	says    time.Time // what Deadline returns: due while the request waits for its slot
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	unwatch func() bool // of the original context; nil: the context is its child
}

// newClientDeadline returns a context that ends with its parent, and from start on also at due. own is the service's own deadline;
// zero: none. masked: the parent's deadline is the client's too, so that the parent's end at it is the client's. stop must be
// called.
func newClientDeadline(parent context.Context, due, own time.Time, masked bool) *clientDeadline {
	p := &clientDeadline{due: due, own: own, says: due}
	if !masked {
		p.Context, p.cancel = context.WithCancelCause(parent)
		return p
	}
	p.Context, p.cancel = context.WithCancelCause(context.WithoutCancel(parent))
	p.unwatch = context.AfterFunc(parent, func() {
		if cause := context.Cause(parent); errors.Is(cause, context.DeadlineExceeded) {
			p.cancel(ErrOwnDeadline)
		} else {
			p.cancel(cause)
		}
	})
	return p
}

// Deadline returns the client's deadline before start, and from then on the service's own, or [Slack] after the client's if that
// is earlier: it does not change under a handler.
func (p *clientDeadline) Deadline() (time.Time, bool) { return p.says, true }

type clientDeadlineKey struct{}

// Value returns the context itself for its own key.
func (p *clientDeadline) Value(key any) any {
	if key == (clientDeadlineKey{}) {
		return p
	}
	return p.Context.Value(key)
}

// start starts the timer, once. Before that, a wait for a slot observes Deadline.
func (p *clientDeadline) start() {
	p.says = earliest(p.own, p.due.Add(Slack))
	p.timer = time.AfterFunc(time.Until(p.due), func() { p.cancel(ErrOwnDeadline) })
}

// stop ends the context and releases its resources.
func (p *clientDeadline) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.unwatch != nil {
		p.unwatch()
	}
	p.cancel(nil)
}

// Due returns when ctx ends at the latest: its deadline, or that of the untrusted client from which it comes, which outgoing
// requests are told. A context that no longer ends with the client's (context.WithoutCancel) has another Deadline than the client
// gave it, or none. own: that deadline is an untrusted client's.
func Due(ctx context.Context) (due time.Time, own, bounded bool) {
	due, bounded = ctx.Deadline()
	if p, ok := ctx.Value(clientDeadlineKey{}).(*clientDeadline); ok && bounded && due.Equal(p.says) {
		return p.due, true, true
	}
	return due, false, bounded
}

// Told returns ctx with the Deadline that a request sent with it tells the other side: [Due]. No timer is set to it.
func Told(ctx context.Context) context.Context {
	if due, own, _ := Due(ctx); own {
		return told{ctx, due}
	}
	return ctx
}

type told struct {
	context.Context
	due time.Time
}

func (t told) Deadline() (time.Time, bool) { return t.due, true }

// TooLate reports whether an answer that comes now, and says that the time was up, says it of an untrusted client's own deadline,
// which whoever was asked was told. foreseen: the answer says that too little time was left.
func TooLate(ctx context.Context, foreseen bool) bool {
	due, own, _ := Due(ctx)
	return own && (foreseen || !time.Now().Before(due))
}

// earliest returns the earlier of two times; the zero time is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

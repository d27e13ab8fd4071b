// Waiting in the queue, and leaving it of one's own accord.

package limiter

import (
	"context"
	"time"
)

// park blocks until somebody takes w out of the queue, or takes it out itself: when ctx ends, or when the deadline is or
// will be missed.
func (l *Limiter) park(ctx context.Context, w *waiter) verdict {
	var timeout <-chan time.Time
	if w.due != never {
		timeout = w.arm(l.clock(), l.ruling.Load().expected)
		defer w.timer.Stop()
	}
	for {
		if wait(w, ctx.Done(), timeout) {
			return w.outcome
		}
		now := l.clock()
		v, mine := l.giveUp(ctx, w, now)
		switch {
		case !mine: // somebody else has taken it out, and has sent before it let go of the lock
			<-w.ready
			return w.outcome
		case v.reason != 0:
			return v
		}
		timeout = w.arm(now, v.r.expected) // less is expected of the task than when the timer was set
	}
}

// arm sets the timer to the instant at which the deadline will be missed.
func (w *waiter) arm(now, expected time.Duration) <-chan time.Time {
	d := missedAt(w.due, expected) - now
	if w.timer == nil {
		w.timer = time.NewTimer(d)
	} else {
		w.timer.Reset(d)
	}
	return w.timer.C
}

// giveUp takes w out of the queue if it must not start any more: the verdict has the reason then. False: somebody else has
// taken it out.
func (l *Limiter) giveUp(ctx context.Context, w *waiter, now time.Duration) (verdict, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !w.inQueue {
		return verdict{}, false
	}
	reason, cause := tooLate(ctx, w.due, now, l.ruling.Load().expected)
	if reason != 0 {
		l.takeOut(w)
	}
	v := l.look(l.state.Load())
	v.reason, v.cause, v.waited = reason, cause, now-w.since
	return v, true
}

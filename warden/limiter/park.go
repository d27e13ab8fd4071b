// Waiting in the queue, and leaving it of one's own accord.

package limiter

import (
	"context"
	"time"
)

// park blocks until somebody takes w out of the queue, or takes it out itself: when ctx ends, or when the deadline is or
// will be missed. The error is ctx's, if that is why.
func (l *Limiter) park(ctx context.Context, w *waiter) (verdict, error) {
	var timeout <-chan time.Time
	if w.due != never {
		timeout = w.arm(l.clock(), l.ruling.Load().expected)
		defer w.timer.Stop()
	}
	for {
		if wait(w, ctx.Done(), timeout) {
			return w.outcome, nil
		}
		now := l.clock()
		v, err, left := l.giveUp(ctx, w, now)
		switch {
		case left:
			return v, err
		case v.r == nil: // somebody else has taken it out, and has sent before it let go of the lock
			<-w.ready
			return w.outcome, nil
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

// giveUp takes w out of the queue if it must not start any more, and then left is true. If it goes on waiting, the
// verdict has what rules; if somebody else has taken it out, not even that.
func (l *Limiter) giveUp(ctx context.Context, w *waiter, now time.Duration) (v verdict, err error, left bool) { //nolint:revive,staticcheck // the error belongs to the verdict
	l.mu.Lock()
	defer l.mu.Unlock()
	if !w.inQueue {
		return verdict{}, nil, false
	}
	reason, err := tooLate(ctx, w.due, now, l.ruling.Load().expected)
	if reason == 0 {
		return verdict{r: l.ruling.Load()}, nil, false
	}
	l.takeOut(w)
	v = l.look(l.state.Load())
	v.reason, v.waited = reason, now-w.since
	return v, err, true
}

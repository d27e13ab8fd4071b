// One task that waits, and how its goroutine is woken.

package queue

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// Waiter is one task in a queue, or on its way into one. Whoever takes it out of the queue owns it: a grant, a refusal, or the
// task's own goroutine that gives up. All of that happens under the owner's mutex, so there is exactly one.
type Waiter[T any] struct {
	Priority int8
	Due      time.Duration // its deadline, or Never; Offer may set it if it was Never
	Patience time.Duration // for how long Offer has taken it to wait; 0: it has a deadline, or that is not known
	Since    time.Duration // when it was offered to the queue
	// Outcome is the owner's: written before Wake, and read by the task's goroutine after Wait.
	Outcome T

	older, newer *Waiter[T]
	lane         *lane[T] // nil: it is in no queue
	number       uint64   // in order of arrival
	untold       bool     // it was offered without a deadline
	spared       bool     // exempt from eviction

	ready chan struct{} // one value for each waiter that was taken out by another goroutine than its own
	timer *time.Timer   // nil until a deadline needs one
}

// Waiting is whether w is in a queue.
func (w *Waiter[T]) Waiting() bool { return w.lane != nil }

// Wake tells the goroutine of a waiter that has been taken out that its Outcome is there. It does not block.
func (w *Waiter[T]) Wake() { w.ready <- struct{}{} }

// Wait blocks until w is woken, done is closed, or the deadline is missed: what is left at now is less than expected, or
// nothing. True: it was woken.
func (w *Waiter[T]) Wait(done <-chan struct{}, now, expected time.Duration) bool {
	var timeout <-chan time.Time
	if w.Due != Never {
		d := w.Due - now
		if expected > 0 {
			d -= expected - 1
		}
		if w.timer == nil {
			w.timer = time.NewTimer(d)
		} else {
			w.timer.Reset(d)
		}
		defer w.timer.Stop()
		timeout = w.timer.C
	}
	select {
	case <-w.ready:
		return true
	case <-done:
	case <-timeout:
	}
	return false
}

// Woken receives what Wake has sent. It does not block if w was taken out by somebody else.
func (w *Waiter[T]) Woken() { <-w.ready }

// Missed is whether a task must not start any more: its deadline has passed, or less than expected is left until then.
func Missed(due, now, expected time.Duration) bool {
	return due != Never && (due <= now || due-now < expected)
}

// TooLate is Gone or Late if a task must not start any more, and else Waits. err is that of its context.
func TooLate(err error, due, now, expected time.Duration) Verdict {
	switch {
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		return Gone
	case err != nil || Missed(due, now, expected):
		return Late
	}
	return Waits
}

// TooLate is Gone, Late or Overstayed if w must not start any more, and else Waits.
func (w *Waiter[T]) TooLate(err error, now, expected time.Duration) Verdict {
	v := TooLate(err, w.Due, now, expected)
	if v == Late && err == nil && w.Patience > 0 {
		return Overstayed
	}
	return v
}

// Yield lets other goroutines run until that brings no new arrival, n times at most: so those that wait for a processor, in Go's
// scheduler, reach the queue first.
func Yield(n int, arrivals func() uint64) {
	if n == 0 {
		return
	}
	came := arrivals()
	for range n {
		runtime.Gosched()
		now := arrivals()
		if now == came {
			return
		}
		came = now
	}
}

// Pool keeps waiters between two waits.
type Pool[T any] struct{ pool sync.Pool }

// Get returns a waiter that waits nowhere.
func (p *Pool[T]) Get() *Waiter[T] {
	if w, ok := p.pool.Get().(*Waiter[T]); ok {
		return w
	}
	return &Waiter[T]{ready: make(chan struct{}, 1)}
}

// Put takes back a waiter that is in no queue, and that nothing is or will be sent to.
func (p *Pool[T]) Put(w *Waiter[T]) {
	var zero T
	w.Outcome = zero
	p.pool.Put(w)
}

// SPDX-License-Identifier: Apache-2.0

// One task that waits, and how its goroutine is woken.

package queue

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// Waiter is one task in a queue, or on its way into one. The goroutine that removes it from the queue, by a grant, by a
// rejection, or by giving up on its own task, owns it. The owner's mutex makes that exactly one.
type Waiter[T any] struct {
	Priority int8
	Due      time.Duration // its deadline, or Never
	Name     string        // its kind of work, for Rule.Needs
	Tenant   *Tenant       // whose it is; nil: nobody has said so
	Trial    bool          // it is as if nothing were known of its kind
	Patient  bool          // Rule.MaxWait does not apply to it
	MaxWait  time.Duration // the longest wait; 0: it has a deadline, or nothing bounds it
	Since    time.Duration // when it was offered to the queue
	// Share is what the tenant had when the task left without a slot; written as Outcome is.
	Share decision.TenantShare
	// Outcome belongs to the owner: written before Wake, and read by the task's goroutine after Wait.
	Outcome T

	older, newer *Waiter[T]
	lane         *lane[T] // nil: it is in no queue
	number       uint64   // in order of arrival

	group         *group[T]
	before, after *Waiter[T] // in the group
	exempt        bool       // exempt from eviction

	later time.Duration // the bound of a later rule, by which it has left; it is written before Wake, as Outcome is

	ready chan struct{} // one value if another goroutine than its own has removed it
	timer *time.Timer   // nil until a deadline or MaxWait needs one
}

// Waiting reports whether w is in a queue.
func (w *Waiter[T]) Waiting() bool { return w.lane != nil }

// Wake wakes the goroutine of a waiter that was removed, and whose Outcome is set. It does not block.
func (w *Waiter[T]) Wake() { w.ready <- struct{}{} }

// Wait blocks until w is woken, done is closed, it has waited for MaxWait, or less time than it needs, or none, is left until its
// deadline. It reports whether w was woken.
func (w *Waiter[T]) Wait(done <-chan struct{}, now, need time.Duration) bool {
	var timeout <-chan time.Time
	if w.Due != Never || w.MaxWait > 0 {
		d := w.Since + w.MaxWait - now
		if w.Due != Never {
			d = w.Due - now - max(need-1, 0)
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

// Bound returns the longest wait, also one that a later rule has set; 0: nothing bounds it. Call it after Wait.
func (w *Waiter[T]) Bound() time.Duration { return max(w.MaxWait, w.later) }

// Woken receives what Wake has sent. It does not block if another goroutine has removed w.
func (w *Waiter[T]) Woken() { <-w.ready }

// Missed reports whether a task must not start any more: its deadline has passed, or less than it needs is left until then.
func Missed(due, now, need time.Duration) bool {
	return due != Never && (due <= now || due-now < need)
}

// TooLate returns Gone or Late if a task must not start any more, else Waits. err is the error of its context.
func TooLate(err error, due, now, need time.Duration) Result {
	switch {
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		return Gone
	case err != nil || Missed(due, now, need):
		return Late
	}
	return Waits
}

// Need returns what w certainly needs; 0: that is not known, or w is the trial of whether it is true.
func (w *Waiter[T]) Need(needs map[string]time.Duration) time.Duration {
	if w.Trial || w.Due == Never {
		return 0
	}
	return needs[w.Name]
}

// TooLate returns Gone, Late or Overstayed if w must not start any more, else Waits.
func (w *Waiter[T]) TooLate(err error, now time.Duration, needs map[string]time.Duration) Result {
	v := TooLate(err, w.Due, now, w.Need(needs))
	if v == Waits && w.MaxWait > 0 && now-w.Since >= w.MaxWait {
		return Overstayed
	}
	return v
}

// Yield lets other goroutines run, at most n times, until that brings no new arrival: so tasks that wait for a processor in
// Go's scheduler reach the queue first.
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

// Put takes back a waiter that is in no queue and will not be woken.
func (p *Pool[T]) Put(w *Waiter[T]) {
	var zero T
	w.Outcome, w.Tenant, w.Share = zero, nil, decision.TenantShare{}
	p.pool.Put(w)
}

// Handing places to those who wait.

package limiter

import "time"

// serve gives free places to waiters until there is none, Slots refuses, or nobody waits. The caller holds mu, and holds it
// afterwards; with Slots, it is let go of in between.
//
// Whatever may have made a place free, a call of serve follows it that asks for it. Several may ask at once, each for a place
// under the target that it has taken before; that the one is refused says nothing about what has come free since. Only who
// finds no such place left, because others ask, leaves a mark; then the first of them that is refused asks again.
func (l *Limiter) serve() {
	for l.queue != nil && l.queue.waiting > 0 {
		now := l.clock()
		l.refresh(now)
		if _, ok := l.takePlace(); !ok {
			l.again = l.asking > 0
			return
		}
		if l.slots != nil && !l.ask() {
			l.leavePlace()
			if !l.again {
				return
			}
			continue
		}
		// While Slots were asked, the target may have been lowered, and those who waited may have left.
		if w := l.state.Load(); running(w) > target(w) || !l.grantNext(now) {
			l.leavePlace()
			if l.slots != nil {
				l.mu.Unlock()
				l.give()
				l.mu.Lock()
			}
		}
	}
}

// ask is take for a caller who holds mu; it is let go of in between.
func (l *Limiter) ask() bool {
	l.asking++
	l.again = false
	l.mu.Unlock()
	ok := l.take()
	l.mu.Lock()
	l.asking--
	return ok
}

// grantNext gives the place that the caller has taken to whoever's turn it is. On the way it dismisses those who can no
// longer make their deadline. False: nobody was left.
func (l *Limiter) grantNext(now time.Duration) bool {
	for l.queue.waiting > 0 {
		w, how := l.queue.next(now)
		if missed(w.due, now, l.ruling.Load().expected) {
			l.dismiss(w, DeadlineExceeded, now, 1)
			continue
		}
		l.queue.granted(w, how, now)
		l.takeOut(w)
		w.outcome = l.look(l.state.Load())
		w.outcome.grant, w.outcome.waited = how, now-w.since
		w.ready <- struct{}{}
		return true
	}
	return false
}

// dismiss takes a waiter out of the queue and refuses it. The caller holds mu, and reserved places that are nobody's yet:
// they are not in flight.
func (l *Limiter) dismiss(w *waiter, why Reason, now time.Duration, reserved uint64) {
	l.takeOut(w)
	w.outcome = l.look(l.state.Load())
	w.outcome.word -= reserved
	w.outcome.reason, w.outcome.waited = why, now-w.since
	w.ready <- struct{}{}
}

// takeOut takes a waiter out of the queue: the caller, who holds mu, owns it. With the last one, the flag falls.
func (l *Limiter) takeOut(w *waiter) {
	l.queue.remove(w)
	if l.queue.waiting == 0 {
		l.state.And(^uint64(queued))
	}
}

// take asks Slots for a place.
func (l *Limiter) take() (ok bool) {
	defer l.contain()
	return l.slots.TryTake()
}

// give returns a place to Slots.
func (l *Limiter) give() {
	defer l.contain()
	l.slots.Give()
}

// giveBack ends the holding of a place: to its owner first, then to those who wait here.
func (l *Limiter) giveBack() {
	if l.slots != nil {
		l.give()
	}
	l.exit()
}

// Wake makes the limiter ask Slots again, if anybody waits. The owner of the capacity calls it when there is a place for
// this limiter that it was refused before; calling it without need does no harm. When it returns, Slots have been asked since, or
// nobody waits, or the target has no room; so an owner may then offer the place to somebody else. It may be called from within
// Give, but not from within TryTake: a limiter that is woken while it asks will ask again. It does not block.
func (l *Limiter) Wake() {
	if l.state.Load()&queued == 0 {
		return
	}
	l.mu.Lock()
	l.serve()
	l.mu.Unlock()
}

// A task on its way to its place: at once, through the queue, or not at all.

package limiter

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// start takes a place at once, if one is free, Slots grants it and nobody waits. It writes to v what ruled in either case;
// v.r stays nil on the zero Limiter.
func (l *Limiter) start(v *verdict) bool {
	for {
		r := l.ruling.Load()
		if r == nil {
			return false
		}
		v.r = r
		w, ok := l.enter(r)
		if ok {
			if l.slots != nil && !l.take() {
				l.exit()
				return false
			}
			v.grant, v.cut, v.word = SlotFree, lowest, w
			return true
		}
		if w&(queued|closed) != 0 || generation(w) == r.generation {
			return false
		}
		// Another ruling is being put in place: its pointer comes before the word. The lock is held until both are there.
		l.mu.Lock()
		l.mu.Unlock() //nolint:staticcheck,gocritic // to wait is all it is for
	}
}

// acquireSlow is Acquire when it is not so simple. asked: start was called already, and found no place.
func (l *Limiter) acquireSlow(ctx context.Context, t Task, asked bool) (Permit, error) {
	r := l.ruling.Load()
	if r == nil {
		return Permit{}, notMade()
	}
	now := l.clock()
	if now > r.until {
		r = l.expire()
	}
	due := t.due(ctx, now)
	if reason, cause := tooLate(ctx, due, now, r.expected); reason != 0 {
		return Permit{}, l.refuse(t, l.snapshot(verdict{r: r, reason: reason, cause: cause}))
	}
	var v verdict
	if !asked && l.start(&v) {
		return l.begin(ctx, t, due, v)
	}

	w := l.waiterPool.Get().(*waiter)
	w.task, w.due, w.since, w.spared = t, due, now, false
	draw := l.draw()
	l.mu.Lock()
	v = l.join(w, draw)
	l.mu.Unlock()
	if v.grant == 0 && v.reason == 0 {
		v = l.park(ctx, w)
	}
	w.task, w.outcome = Task{}, verdict{}
	l.waiterPool.Put(w) // it is in no queue, and nothing is or will be sent to it
	if v.reason != 0 {
		return Permit{}, l.refuse(t, v)
	}
	return l.begin(ctx, t, due, v)
}

// tryAcquireSlow is TryAcquire when it is not so simple.
func (l *Limiter) tryAcquireSlow(t Task, asked bool) (Permit, error) {
	r := l.ruling.Load()
	if r == nil {
		return Permit{}, notMade()
	}
	now := l.clock()
	if now > r.until {
		r = l.expire()
	}
	if !t.Deadline.IsZero() && missed(t.due(context.Background(), now), now, r.expected) {
		return Permit{}, l.refuse(t, l.snapshot(verdict{r: r, reason: DeadlineExceeded}))
	}
	var v verdict
	if !asked && l.start(&v) {
		return l.sitObserved(t, &v), nil
	}
	l.mu.Lock()
	v = l.tryAgain()
	if v.grant == 0 {
		l.cannotWait(&v)
	}
	l.mu.Unlock()
	if v.grant != 0 {
		return l.sitObserved(t, &v), nil
	}
	return Permit{}, l.refuse(t, v)
}

// tooLate is why a task must not start any more, with the error that says so; else 0.
func tooLate(ctx context.Context, due, now, expected time.Duration) (Reason, error) {
	switch err := ctx.Err(); {
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		return Canceled, err
	case err != nil || missed(due, now, expected):
		return DeadlineExceeded, context.DeadlineExceeded
	}
	return 0, nil
}

// join decides about a task that found no place: it may find one now, be refused, or enter the queue (a verdict without a
// grant and without a reason); a place that comes free from then on will be offered to it. The caller holds mu.
func (l *Limiter) join(w *waiter, draw float64) verdict {
	v := l.tryAgain()
	if v.grant != 0 {
		return v
	}
	if l.maxQueue == 0 || v.word&closed != 0 {
		l.cannotWait(&v)
		return v
	}
	if l.queue == nil {
		l.queue, l.ranks = newQueue(l.every, l.patience), new(ranks)
	}
	reason := l.shed(w.task.Priority, w.since, draw)
	if reason == 0 && l.turnAway(laneOf(w.task.Priority), w.since) {
		reason = QueueOverflow
	}
	if reason != 0 {
		if w.spared = l.queue.mercy(l.maxQueue); w.spared {
			reason = 0
		}
	}
	if reason == 0 && l.queue.waiting >= l.maxQueue && !l.makeRoom(w) {
		reason = QueueOverflow
	}
	if reason != 0 {
		v = l.look(v.word)
		v.reason = reason
		return v
	}
	// The flag goes up before the places are counted again: whoever gave one back without seeing it did so before.
	l.queue.push(w)
	l.state.Or(queued)
	l.serve()
	return verdict{}
}

// shed is the reason for which a task of this priority, which would have to wait, is to be shed; 0: it is not.
func (l *Limiter) shed(p Priority, now time.Duration, draw float64) Reason {
	l.ranks.add(p, now)
	cut, part := l.ranks.cut(l.ruling.Load().decision.ShedProbability)
	switch {
	case p < cut, p == cut && part >= 1:
		return PressureHigh
	case p == cut && draw < part:
		return ProbabilisticShedding
	}
	return 0
}

// makeRoom evicts the youngest of the lowest priority from a full queue, if it is less important than w. Mercy may spare
// it, and then the next one is looked at; or, if it is w that would be refused, spare w, and then the youngest of the
// lowest goes whatever it is.
func (l *Limiter) makeRoom(w *waiter) bool {
	q := l.queue
	victim := q.victim()
	goes := func() bool { return victim != nil && (w.spared || victim.task.Priority < w.task.Priority) }
	switch {
	case w.spared:
	case !goes():
		w.spared = q.mercy(l.maxQueue)
	case q.mercy(l.maxQueue):
		q.spare(victim)
		victim = q.victim()
	}
	if !goes() {
		return false
	}
	l.dismiss(victim, PriorityDrop, w.since, 0)
	return true
}

// tryAgain is start with the lock held, so that what it finds and what is decided then belong together. Slots are not
// asked again. The caller holds mu.
func (l *Limiter) tryAgain() verdict {
	w, ok := l.state.Load(), false
	if w&queued == 0 && l.slots == nil {
		w, ok = l.takePlace()
	}
	v := l.look(w)
	if ok {
		v.grant, v.cut = SlotFree, lowest
	}
	return v
}

// cannotWait refuses a task that found no place and may not wait.
func (l *Limiter) cannotWait(v *verdict) {
	switch {
	case v.word&closed != 0:
		v.reason = Closed
	case target(v.word) == 0:
		v.reason = PressureHigh
	default:
		v.reason = QueueOverflow
	}
}

// begin is the last step before a task that holds a place starts: it lets others arrive, and looks once more at whether
// it is too late. Then the task has its permit, or has given its place back.
func (l *Limiter) begin(ctx context.Context, t Task, due time.Duration, v verdict) (Permit, error) {
	for range v.r.yields {
		came := l.came.Load()
		runtime.Gosched()
		if l.came.Load() == came {
			break
		}
	}
	if v.r.yields > 0 || v.grant != SlotFree {
		var now time.Duration
		if due != never {
			now = l.clock()
		}
		if reason, cause := tooLate(ctx, due, now, v.r.expected); reason != 0 {
			l.giveBack()
			v.reason, v.cause = reason, cause
			return Permit{}, l.refuse(t, l.snapshot(v))
		}
	}
	if v.grant != SlotFree {
		e := &entry{is: l.explainStart(t, v)}
		e.is.At = time.Now()
		l.record(e)
	}
	return l.sitObserved(t, &v), nil
}

// sitObserved tells the observer, if there is one, that a task starts. If the observer ends the goroutine, nobody will own
// the place: it is given back.
func (l *Limiter) sitObserved(t Task, v *verdict) Permit {
	p := l.sit(t, v)
	if l.observer == nil {
		return p
	}
	owned := false
	defer func() {
		if !owned {
			p.Release()
		}
	}()
	e := p.Explain()
	e.At = time.Now()
	p.seat.began = e.At
	l.observe(e, 0)
	owned = true
	return p
}

// look is a verdict with all but the verdict: what rules and how things stand, by the state word that decided. The caller
// holds mu.
func (l *Limiter) look(w uint64) verdict {
	v := verdict{r: l.ruling.Load(), word: w, cut: lowest}
	if l.queue != nil {
		v.queueLen = int32(l.queue.waiting)
		v.cut, _ = l.ranks.cut(v.r.decision.ShedProbability)
	}
	return v
}

// snapshot completes a refusal that was decided without the lock.
func (l *Limiter) snapshot(v verdict) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.look(l.state.Load())
	s.r, s.reason, s.cause, s.waited = v.r, v.reason, v.cause, v.waited
	return s
}

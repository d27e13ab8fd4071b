// SPDX-License-Identifier: Apache-2.0

// The life of a task: it starts at once, waits or is rejected; it ends when its permit is released.

package limiter

import (
	"context"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/fair"
	"github.com/stopbank/stopbank/warden/internal/queue"
)

// Acquire returns a permit, at once while a slot is free or after waiting in the queue, or a [*decision.Rejection]. Release the
// permit exactly once: defer p.Release().
//
// Acquire blocks until the task is granted a slot or rejected, its deadline passes, or ctx ends. It neither wraps ctx nor
// cancels running work. Once the limiter has reached its peak number of running tasks, a start without waiting allocates
// nothing, a rejection once, and a wait takes what it needs from a pool. The error is an [*decision.InvalidError] if ctx or l
// is nil.
func (l *Limiter) Acquire(ctx context.Context, t Task) (Permit, error) {
	switch {
	case !l.valid():
		return Permit{}, errNotMade()
	case ctx == nil:
		return Permit{}, invalidField("ctx", "nil", "a context")
	}
	if _, bounded := ctx.Deadline(); !bounded && l.observer == nil && t.Deadline.IsZero() && ctx.Err() == nil {
		if p, of, o, ok := l.startAtOnce(&t); ok {
			if o.rule.yields == 0 {
				return p, nil
			}
			return l.begin(ctx, t, of, deadline{due: queue.Never}, o)
		}
	}
	return l.acquire(ctx, t)
}

// TryAcquire is Acquire without waiting: neither in the queue nor for more important arrivals. It never blocks.
func (l *Limiter) TryAcquire(t Task) (Permit, error) {
	if !l.valid() {
		return Permit{}, errNotMade()
	}
	now := time.Duration(0)
	d := deadline{due: queue.Never}
	if !t.Deadline.IsZero() {
		now = l.clock()
		d = deadlineOf(context.Background(), t, now)
	}
	of := l.tenantOf(t.Tenant)
	l.mu.Lock()
	of = l.presentLocked(of)
	if d.due != queue.Never || !l.freeLocked() {
		now = l.clock()
		l.refreshLocked(now)
	}
	l.submitLocked(t.Priority)
	var o outcome
	switch {
	case queue.Missed(l.rule.due(d), now, 0):
		o = l.countRejectionLocked(t.Priority, queue.Late, 0, now)
	case l.freeLocked():
		o = l.grantLocked(t.Priority, of)
	case l.inDryRunLocked():
		o = l.startDryRunLocked(t, of, d.due, now, false, 0)
	default:
		o = l.countRejectionLocked(t.Priority, l.fullLocked(queue.NoSlot), 0, now)
	}
	if o.reason != 0 {
		share := l.shareLocked(of)
		l.mu.Unlock()
		return Permit{}, l.rejection(t, share, d, o)
	}
	p := l.newPermitLocked(&t, of, &d, &o)
	l.mu.Unlock()
	if o.would != 0 || o.grant != queue.Free {
		l.remember(t, d, o)
	}
	return l.observeStart(p), nil
}

// Do acquires a slot, runs fn(ctx), and releases the slot when fn returns, panics or calls runtime.Goexit; a panic is not
// recovered, so its stack trace stays complete. The error is fn's own; or that of [Limiter.Acquire], and fn was not called; or
// an [*decision.InvalidError] if fn or l is nil. A task that ends with an error or a panic has failed ([Permit.Fail]), or is
// abandoned ([Permit.Abandon]) if it returns an error after ctx has ended. Do blocks and allocates as Acquire does.
func Do[T any](ctx context.Context, l *Limiter, t Task, fn func(context.Context) (T, error)) (T, error) {
	var zero T
	if fn == nil {
		return zero, invalidField("fn", "nil", "a function")
	}
	p, err := l.Acquire(ctx, t)
	if err != nil {
		return zero, err
	}
	defer p.Fail() // unless it is released by then
	out, err := fn(ctx)
	switch {
	case err == nil:
		p.Release()
	case ctx.Err() != nil:
		p.Abandon()
	}
	return out, err
}

// startAtOnce is the fast path: it grants a free slot to a task without deadline or observer. A task that still has to yield
// gets its permit later.
func (l *Limiter) startAtOnce(t *Task) (p Permit, of *queue.Tenant, o outcome, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.freeLocked() {
		return p, of, o, false
	}
	if t.Tenant != "" {
		if of = l.tenants.Find(t.Tenant); of == nil {
			return p, nil, o, false
		}
	}
	l.submitLocked(t.Priority)
	o = l.grantLocked(t.Priority, of)
	if o.rule.yields == 0 {
		p = l.newPermitLocked(t, of, &deadline{}, &o)
	}
	return p, of, o, true
}

// acquire is the slow path of Acquire: deadlines, queue, observer.
func (l *Limiter) acquire(ctx context.Context, t Task) (Permit, error) {
	now := l.clock()
	d, err, draw := deadlineOf(ctx, t, now), ctx.Err(), l.draw()
	w := l.waiters.Get()
	w.Priority, w.Due, w.Patient = int8(t.Priority), d.due, t.Patient || t.Priority == decision.Critical
	w.Name, w.Trial = t.Name, trial(draw)
	of := l.tenantOf(t.Tenant)
	l.mu.Lock()
	of = l.presentLocked(of)
	w.Tenant = of
	l.refreshLocked(now)
	l.submitLocked(t.Priority)
	o, due, need := outcome{}, l.rule.due(d), w.Need(l.rule.needs())
	v := queue.TooLate(err, due, now, 0)
	switch {
	case v != queue.Waits:
		o = l.countRejectionLocked(t.Priority, v, 0, now)
		o.cause = err
	case l.freeLocked():
		o = l.grantLocked(t.Priority, of)
	case l.inDryRunLocked():
		o = l.startDryRunLocked(t, of, d.due, now, true, draw)
	case l.closed || l.queue.Limit == 0:
		o = l.countRejectionLocked(t.Priority, l.fullLocked(queue.Full), 0, now)
	case queue.Missed(due, now, need):
		o = l.countRejectionLocked(t.Priority, queue.Late, 0, now)
	default:
		if v = l.queue.Offer(w, now, l.queueLocked(), draw); v != queue.Waits {
			o = l.countRejectionLocked(t.Priority, v, 0, now)
		} else if of != nil {
			l.tenants.Settle(of)
		}
		l.seeLocked(now)
	}
	share := l.shareLocked(of)
	l.mu.Unlock()
	if o.rule == nil {
		done := l.doneOf(ctx) // a context allocates its channel on demand: only who waits needs it
		for over := false; !over && !w.Wait(done, l.clock(), need); {
			need, over = l.leave(ctx, w)
		}
		o, share = w.Outcome, w.Share
		o.maxWait = w.Bound()
	}
	o.trial = w.Trial
	l.waiters.Put(w)
	if o.reason != 0 {
		return Permit{}, l.rejection(t, share, d, o)
	}
	return l.begin(ctx, t, of, d, o)
}

// leave removes a waiting task from the queue if its context has ended or its deadline can no longer be met. over is true if
// the task no longer waits, removed here or decided concurrently; otherwise need is what it has to have left.
func (l *Limiter) leave(ctx context.Context, w *queue.Waiter[outcome]) (need time.Duration, over bool) {
	err := l.errOf(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !w.Waiting() {
		w.Woken()
		return 0, true
	}
	now, needs := l.clock(), l.rule.needs()
	v := w.TooLate(err, now, needs)
	if v == queue.Waits {
		return w.Need(needs), false
	}
	w.Share = l.shareLocked(w.Tenant)
	l.queue.Remove(w)
	w.Outcome = l.countRejectionLocked(decision.Priority(w.Priority), v, now-w.Since, now)
	w.Outcome.cause = err
	l.settleLocked(w.Tenant)
	return 0, true
}

// begin is the last step before a granted task starts: it yields to new arrivals and checks context and deadline once more.
// Then the task has its permit, or has given its slot back. What it needs counts only while others wait for the slot:
// giving it back for nobody would help nobody.
func (l *Limiter) begin(ctx context.Context, t Task, of *queue.Tenant, d deadline, o outcome) (Permit, error) {
	var err error
	var now time.Duration
	due := queue.Never
	if yields := o.rule.yields; yields > 0 || o.grant != queue.Free {
		queue.Yield(yields, l.arrivals)
		err = l.errOf(ctx)
		if due = o.rule.due(d); due != queue.Never {
			now = l.clock()
		}
	}
	l.mu.Lock()
	need := time.Duration(0)
	if l.queue.Len() > 0 && !o.trial {
		need = o.rule.needs()[t.Name]
	}
	v := queue.TooLate(err, due, now, need)
	if v != queue.Waits {
		share := l.shareLocked(of)
		l.vacateLocked(t.Priority, of)
		o = l.countRejectionLocked(t.Priority, v, o.waited, l.clock())
		o.cause = err
		l.serveLocked()
		l.mu.Unlock()
		return Permit{}, l.rejection(t, share, d, o)
	}
	p := l.newPermitLocked(&t, of, &d, &o)
	l.mu.Unlock()
	if o.would != 0 || o.grant != queue.Free {
		l.remember(t, d, o)
	}
	return l.observeStart(p), nil
}

// remember keeps the explanation of a start: of a task that would have been rejected or has waited.
func (l *Limiter) remember(t Task, d deadline, o outcome) {
	kept := l.delayed
	if o.would != 0 {
		kept = l.rejections
	}
	e := l.explain(t, d, o)
	e.At = time.Now()
	kept.Add(e)
}

// trials is how many tasks that find no free slot have one among them of whose kind nothing counts as known. A need is the
// shortest of 64 executions, so the first of these that is shorter mends it: no belief outlives 64 tasks by much, and at most one
// slot in 64 is lost to those who cannot be answered in time.
const trials = 64

// trial reports whether a task is one, by a random draw: so it is of each kind, however many there are, and nothing is kept of
// them.
func trial(draw float64) bool { return draw >= 1-1.0/trials }

func (l *Limiter) arrivals() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.submitted
}

// freeLocked reports whether a task may start at once.
func (l *Limiter) freeLocked() bool {
	return l.direct && l.running < l.rule.slots && l.queue.Len() == 0
}

// inDryRunLocked reports whether tasks start although the decision may reject them (dry run).
func (l *Limiter) inDryRunLocked() bool { return l.rule.mode == decision.DryRun && !l.closed }

// fullLocked returns the reason to reject a task that found no slot and cannot wait: otherwise, if the limiter is open and has
// slots.
func (l *Limiter) fullLocked(otherwise queue.Result) queue.Result {
	switch {
	case l.closed:
		return queue.Closed
	case l.rule.decision.TargetConcurrency == 0:
		return queue.Shed
	}
	return otherwise
}

// submitLocked counts an arriving task.
func (l *Limiter) submitLocked(p decision.Priority) {
	l.submitted++
	l.classes[class(p)].Submitted++
}

// occupyLocked takes a slot for a task of that tenant, and vacate gives it back.
func (l *Limiter) occupyLocked(p decision.Priority, of *queue.Tenant) {
	l.running++
	l.classes[class(p)].Running++
	if of != nil {
		l.named++
		of.InFlight++
		l.tenants.Serve(of)
		l.settleLocked(of)
	}
}

func (l *Limiter) vacateLocked(p decision.Priority, of *queue.Tenant) {
	l.running--
	l.classes[class(p)].Running--
	if of != nil {
		l.named--
		of.InFlight--
		l.settleLocked(of)
	}
}

// settleLocked follows what a tenant has in flight and waiting.
func (l *Limiter) settleLocked(of *queue.Tenant) {
	if of != nil {
		l.tenants.Settle(of)
		l.queue.Served(of)
	}
}

// grantLocked takes a slot for a task that did not wait.
func (l *Limiter) grantLocked(p decision.Priority, of *queue.Tenant) outcome {
	l.occupyLocked(p, of)
	return outcome{rule: l.rule, grant: queue.Free, cut: lowest, inFlight: int32(l.running)}
}

// countRejectionLocked counts a rejection and returns its outcome.
func (l *Limiter) countRejectionLocked(p decision.Priority, why queue.Result, waited, now time.Duration) outcome {
	c := &l.classes[class(p)]
	c.byReason[why]++
	if why == queue.Gone {
		c.Canceled++
	} else {
		c.Rejected++
	}
	o := l.describeLocked(now)
	o.reason, o.waited = why, waited
	return o
}

func (l *Limiter) describeLocked(now time.Duration) outcome {
	cut, _ := l.queue.Cut(l.rule.decision.ShedProbability)
	return outcome{rule: l.rule, inFlight: int32(l.running), queued: int32(l.queue.Len()), cut: decision.Priority(cut),
		oldestHeld: l.oldestLocked(now)}
}

// serveLocked grants free slots to waiting tasks. Every change that may free a slot calls serve before it unlocks mu.
func (l *Limiter) serveLocked() {
	if l.queue.Len() == 0 || l.running >= l.rule.slots {
		return
	}
	now := l.clock()
	l.refreshLocked(now)
	for l.running < l.rule.slots {
		w, how := l.queue.Next(now, l.queueLocked())
		if w == nil {
			return
		}
		l.occupyLocked(decision.Priority(w.Priority), w.Tenant)
		w.Outcome = l.describeLocked(now)
		w.Outcome.grant, w.Outcome.waited = how, now-w.Since
		w.Wake()
	}
}

// dropLocked is the queue's callback for a task that it drops.
func (l *Limiter) dropLocked(w *queue.Waiter[outcome], why queue.Result, now time.Duration) {
	w.Outcome, w.Share = l.countRejectionLocked(decision.Priority(w.Priority), why, now-w.Since, now), l.shareLocked(w.Tenant)
	l.settleLocked(w.Tenant)
	w.Wake()
}

// Permit is one slot held by one task. It is a small value, free to copy and to release from any goroutine: all copies
// together release once. The zero Permit releases nothing.
type Permit struct {
	l      *Limiter
	slot   *slot
	number uint64 // equals slot.number while this permit is valid; no two permits share slot and number
}

// slot is the record behind a permit: its identity and its task. Limiter.mu guards all fields. The number of slots is the
// peak number of running tasks.
type slot struct {
	number       uint64        // grows by one with each release
	older, newer *slot         // of the running tasks, those that started before and after it; in the free list, newer is the next
	seen         time.Duration // when it was first seen to run; 0: nobody has looked since it started
	parked       bool          // it has no slot: Permit.Park
	tenant       *queue.Tenant // whose task it is; nil: nobody has said so
	task         Task
	deadline     deadline
	outcome      outcome
}

// newPermitLocked makes the permit of a task that was granted a slot and starts now.
func (l *Limiter) newPermitLocked(t *Task, of *queue.Tenant, d *deadline, o *outcome) Permit {
	s := l.idle
	if s == nil {
		s = new(slot)
	}
	l.idle = s.newer
	s.task, s.tenant, s.deadline, s.outcome = *t, of, *d, *o
	l.runLocked(s)
	return Permit{l, s, s.number}
}

// Release ends the task and returns true to exactly one caller: the first. False means that the permit was already released, or
// is the zero Permit; then nothing changes, even if the slot has been granted to another task since. Release grants the slot to
// the next waiting task and calls the Observer, if there is one; apart from that it does not block and allocates nothing.
func (p Permit) Release() bool { return p.end(answered) }

// Abandon is Release for a task whose deadline or client ended it before it had an answer: it counts in [Tally].Abandoned as well
// (Q22). What has begun to answer, a stream for example, is not abandoned when its client leaves.
func (p Permit) Abandon() bool { return p.end(abandoned) }

// Fail is Release for a task that was answered with an error of the service, or not at all because its work panicked: it counts
// in [Tally].Failed as well (Q23). An answer that rejects what the client asked for is no failure.
func (p Permit) Fail() bool { return p.end(failed) }

// Park gives the slot of a task to others while the task only waits for something to tell its client: an event stream or a watch
// after its beginning (Q24). It is still to be released. Park reports whether the task has no slot now: there may be as many such
// tasks as the decision says (Parked). It does not block and allocates nothing.
func (p Permit) Park() bool {
	l, s := p.l, p.slot
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.number != p.number {
		return false
	}
	if !s.parked && l.parked < l.rule.decision.Parked {
		s.parked = true
		l.parked++
		l.classes[class(s.task.Priority)].Parked++
		l.leaveLocked(s)
		l.serveLocked()
	}
	return s.parked
}

// leaveLocked gives the slot of a task back.
func (l *Limiter) leaveLocked(s *slot) {
	l.endLocked(s)
	if s.tenant != nil {
		l.tenants.Charge(s.tenant, l.clock()-s.seen, fair.MostOwed)
	}
	l.vacateLocked(s.task.Priority, s.tenant)
	if s.outcome.would != 0 {
		l.unwanted--
	}
}

// ending is how a task ended.
type ending uint8

const (
	answered  ending = iota
	abandoned        // its deadline or its client ended it before it had an answer
	failed
)

func (p Permit) end(how ending) bool {
	l := p.l
	if l == nil {
		return false
	}
	if l.observer != nil {
		return p.endObserved(how)
	}
	l.mu.Lock()
	ended := p.endLocked(how)
	l.mu.Unlock()
	return ended
}

func (p Permit) endLocked(how ending) bool {
	l, s := p.l, p.slot
	if s.number != p.number {
		return false
	}
	s.number++
	c := &l.classes[class(s.task.Priority)]
	if s.parked {
		s.parked = false
		l.parked--
		c.Parked--
	} else {
		l.leaveLocked(s)
	}
	s.newer, l.idle = l.idle, s
	c.Executed++
	switch how {
	case abandoned:
		c.Abandoned++
	case failed:
		c.Failed++
	case answered:
	}
	l.serveLocked()
	return true
}

func (p Permit) endObserved(how ending) bool {
	l := p.l
	l.mu.Lock()
	e, began := l.explain(p.slot.task, p.slot.deadline, p.slot.outcome), p.slot.seen
	ended := p.endLocked(how)
	l.mu.Unlock()
	if ended {
		e.Outcome, e.At = decision.Executed, time.Now()
		l.observe(Event{e, e.At.Sub(l.epoch) - began, how == abandoned, how == failed})
	}
	return ended
}

// Explain returns why the task was started, how long it waited, and the decision in force. It is valid until the permit is
// released; afterwards it returns the zero Explanation. It allocates nothing.
func (p Permit) Explain() decision.Explanation {
	if p.l == nil {
		return decision.Explanation{}
	}
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.slot.number != p.number {
		return decision.Explanation{}
	}
	return p.l.explain(p.slot.task, p.slot.deadline, p.slot.outcome)
}

// SPDX-License-Identifier: Apache-2.0

// A call on its way into a compartment and out of it.

package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/patience"
	"github.com/stopbank/stopbank/warden/internal/queue"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
	"github.com/stopbank/stopbank/warden/monitor"
)

// call is one admitted function. It lives as long as the function, so most calls never reach the heap.
type call struct {
	*mark
	c      *Compartment
	done   func(error)    // reports to the breaker; nil: no breaker
	made   *patience.Trip // what its function does for a request that is served; nil: not known
	began  stopwatch
	cohort *cohort // that it counts in
	span   monitor.Span
	within time.Duration // the Timeout; 0: none
	waited time.Duration
	would  decision.RejectionReason // why Enforce would have rejected it, in a dry run; 0: it would not
}

// mark is the context that a function runs with, and a call's only allocation, kept small for that reason. It may outlive the
// call.
type mark struct {
	context.Context // the caller's
	pool            *pool
	state           stage // guarded by Set.mu
}

type stage uint8

// The states of a call.
const (
	runs      stage = iota
	abandoned       // the caller has left, the function still runs
	ended           // the slot is released
)

// become ends the state runs; it returns true to exactly one caller.
func (m *mark) become(next stage) bool {
	s := m.pool.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.state != runs {
		return false
	}
	m.state = next
	return true
}

// holds reports whether the call still has its slot.
func (m *mark) holds() bool {
	s := m.pool.set
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.state != ended
}

type markKey struct{}

// Value returns the mark itself.
func (m *mark) Value(key any) any {
	if _, ok := key.(markKey); ok {
		return m
	}
	return m.Context.Value(key)
}

// innermost returns the mark of the innermost compartment of ctx, nil if there is none.
func innermost(ctx context.Context) *mark {
	m, _ := ctx.Value(markKey{}).(*mark)
	return m
}

// entered reports whether ctx belongs to a call that holds a slot of p.
func (p *pool) entered(ctx context.Context) bool {
	for m := innermost(ctx); m != nil; m = innermost(m.Context) {
		if m.pool == p && m.holds() {
			return true
		}
	}
	return false
}

// outcome records a decision about a call that could not start at once, with the compartment's state at that time.
type outcome struct {
	from          decision.DeadlineSource  // of the call's deadline
	reason        decision.RejectionReason // of a rejection; 0: it was granted a slot
	grant         queue.Result
	waited        time.Duration
	maxWait       time.Duration
	inFlight      int
	queued        int
	bound         decision.Bound
	limit         int
	cut           decision.Priority
	decision      *decision.ControlDecision
	decisionState decision.DecisionState
	would         decision.RejectionReason // of a grant in a dry run
	mode          decision.Mode
	cause         error // of a rejection by the breaker
}

// A deadline is the earlier of the caller's and the compartment's bound on the wait.
type deadline struct {
	at   time.Time
	from decision.DeadlineSource
	most time.Duration // the compartment's bound; 0: none
	due  time.Duration // by the set's clock; queue.Never: no deadline
}

func (p *pool) deadline(ctx context.Context, now time.Duration) deadline {
	d := deadline{due: queue.Never}
	if at, _, ok := timelimit.Due(ctx); ok {
		d = deadline{at, "context", 0, min(time.Until(at), queue.Never-1-now) + now}
	}
	if most, from := p.bounds.Load().wait(); most > 0 && most < d.due-now {
		d = deadline{time.Now().Add(most), from, most, now + most}
	}
	return d
}

// begin waits for a slot and asks the breaker. Without an error, it fills in k, and allocates k's mark unless k has one.
func (c *Compartment) begin(ctx context.Context, k *call) error {
	p := c.pool
	if p.entered(ctx) {
		p.countEarlyRejection(decision.Reentry)
		return &decision.ReentryError{Limiter: p.config.Name}
	}
	_, _, bounded := timelimit.Due(ctx)
	yields, ok := 0, false
	if !bounded && ctx.Err() == nil {
		yields, ok = c.startAtOnce(k)
	}
	d := deadline{due: queue.Never}
	var o outcome
	if !ok {
		var err error
		if d, o, err = c.wait(ctx, k); err != nil {
			return err
		}
		yields, k.waited = o.decision.Yields, o.waited
	}
	if k.mark == nil {
		k.mark = new(mark)
	}
	k.Context, k.pool = ctx, p
	if o.would != "" {
		p.rejections.Add(c.explain(ctx, d, o))
	}
	if o.grant > queue.Free || yields > 0 || p.config.Breaker != nil {
		if err := k.proceed(ctx, yields, d, o); err != nil {
			return err
		}
	}
	k.within = p.bounds.Load().Timeout
	k.began.start(p.set)
	k.span = p.feeds.Load().Start(p.config.Name)
	return nil
}

// startAtOnce is the fast path: it takes a free slot for a call without a deadline of its own. If c is a tenant that was
// evicted meanwhile, the slot is its successor's.
func (c *Compartment) startAtOnce(k *call) (yields int, ok bool) {
	p, s := c.pool, c.pool.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if c = c.presentLocked(); c.queue.Len() > 0 || !s.freeLocked(c) {
		return 0, false
	}
	p.counts.submitted++
	if yields = p.rule.Yields; yields == 0 && p.config.Breaker == nil {
		p.admitLocked(k)
	}
	s.takeLocked(c)
	s.settleLocked(c)
	k.c = c
	return yields, true
}

// admitLocked counts a call whose function starts now.
func (p *pool) admitLocked(k *call) {
	p.counts.admitted++
	k.cohort = p.cohorts.open
	k.cohort.running++
	k.began.weight = p.window.weigh(p.set.observer != nil || p.tenants != nil)
}

// wait is the slow path: it gets a slot, perhaps after queueing, or returns the rejection.
func (c *Compartment) wait(ctx context.Context, k *call) (deadline, outcome, error) {
	p, s := c.pool, c.pool.set
	now := s.clock()
	d, err, done, draw, open := p.deadline(ctx, now), ctx.Err(), ctx.Done(), rand.Float64(), p.breakerOpen()
	w := s.waiters.Get()
	w.Priority, w.Due, w.Patient = int8(p.config.Criticality), d.due, p.config.Criticality == decision.Critical
	w.Outcome = outcome{from: d.from}
	s.mu.Lock()
	c = c.presentLocked()
	p.counts.submitted++
	v := queue.TooLate(err, d.due, now, 0)
	switch {
	case v != queue.Waits:
		c.rejectLocked(&w.Outcome, v, 0)
	case c.queue.Len() == 0 && s.freeLocked(c):
		s.takeLocked(c)
		c.describeLocked(&w.Outcome)
		w.Outcome.grant = queue.Free
		if p.rule.Yields == 0 && p.config.Breaker == nil {
			p.admitLocked(k)
		}
	case p.share.Mode != decision.Enforce:
		c.describeLocked(&w.Outcome)
		k.would = c.startWithoutSlotLocked(&w.Outcome, d, now, draw)
		w.Outcome.grant = queue.Free
		if p.rule.Yields == 0 && p.config.Breaker == nil {
			p.admitLocked(k)
		}
	case open:
		c.describeLocked(&w.Outcome)
		w.Outcome.reason, w.Outcome.cause = BreakerOpen, p.refused
		p.countRejectionLocked(BreakerOpen)
	case c.queue.Limit == 0:
		c.rejectLocked(&w.Outcome, queue.Full, 0)
	default:
		if v = c.queue.Offer(w, now, p.waitingRuleLocked(), draw); v != queue.Waits {
			c.rejectLocked(&w.Outcome, v, 0)
		}
	}
	s.settleLocked(c)
	waits := w.Waiting()
	s.mu.Unlock()
	if waits {
		for over := false; !over && !w.Wait(done, s.clock(), 0); {
			over = c.leave(ctx, w)
		}
		w.Outcome.maxWait = w.Bound()
	}
	o := w.Outcome
	s.waiters.Put(w)
	if o.reason != "" {
		return d, o, c.rejection(ctx, d, o)
	}
	k.c = c
	return d, o, nil
}

// leave removes a waiting call from the queue if its context has ended or its deadline has passed. It returns true if the
// call no longer waits, removed here or decided concurrently.
func (c *Compartment) leave(ctx context.Context, w *queue.Waiter[outcome]) (over bool) {
	s := c.pool.set
	err := s.errOf(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.Waiting() {
		w.Woken()
		return true
	}
	now := s.clock()
	v := w.TooLate(err, now, nil)
	if v == queue.Waits {
		return false
	}
	c.queue.Remove(w)
	c.rejectLocked(&w.Outcome, v, now-w.Since)
	s.settleLocked(c)
	return true
}

// waitingRuleLocked returns the part of the decision that the queue follows. The expected execution time serves only as the
// length of a burst: most calls' deadlines bound their wait, not their work.
func (p *pool) waitingRuleLocked() queue.Rule {
	return queue.Rule{Burst: max(p.rule.Burst, p.window.usual), MaxWait: p.rule.MaxWait, Share: p.rule.ShedProbability}
}

// breakerOpen reports whether the breaker is open. An IsOpen or State that panics counts as not open.
func (p *pool) breakerOpen() bool {
	if p.open == nil {
		return false
	}
	defer p.set.contain()
	return p.open()
}

// describeLocked records the compartment's state in o.
func (c *Compartment) describeLocked(o *outcome) {
	p, s := c.pool, c.pool.set
	cut, _ := c.queue.Cut(p.rule.ShedProbability)
	o.inFlight, o.queued, o.cut, o.decision, o.decisionState = c.held+c.withoutSlot, c.queue.Len(), decision.Priority(cut), p.rule,
		s.decisionState
	o.mode = p.share.Mode
}

// grantLocked wakes a call that was taken out of the queue, with its slot.
func (c *Compartment) grantLocked(w *queue.Waiter[outcome], how queue.Result, now time.Duration) {
	c.describeLocked(&w.Outcome)
	w.Outcome.grant, w.Outcome.waited = how, now-w.Since
	w.Wake()
}

// dropLocked is the queue's callback for a call that it drops.
func (c *Compartment) dropLocked(w *queue.Waiter[outcome], why queue.Result, now time.Duration) {
	c.rejectLocked(&w.Outcome, why, now-w.Since)
	w.Wake()
}

// rejectLocked counts a rejection and records the compartment's state.
func (c *Compartment) rejectLocked(o *outcome, why queue.Result, waited time.Duration) {
	c.describeLocked(o)
	o.reason, o.waited, o.grant = named(why.Reason(), o.from), waited, 0
	if waited > 0 || why < queue.Late {
		o.bound, o.limit = c.pool.set.fullLocked(c)
	}
	c.pool.countRejectionLocked(o.reason)
}

// rejection builds the caller's error, and records it unless it is the breaker's.
func (c *Compartment) rejection(ctx context.Context, d deadline, o outcome) error {
	p := c.pool
	p.set.review()
	r := &decision.Rejection{Explanation: c.explain(ctx, d, o), Cause: o.cause}
	switch o.reason {
	case BreakerOpen:
		return r
	case decision.Canceled:
		r.Cause = p.set.errOf(ctx)
	case TimeoutQueued:
		r.Cause = &TimeoutError{p.config.Name, d.most, r.Task.ID}
	case decision.DeadlineExceeded:
		r.Cause = context.DeadlineExceeded
		if _, strangers, _ := timelimit.Due(ctx); strangers && d.from == "context" {
			timelimit.Blameless(ctx, r)
		}
	}
	p.rejections.Add(r.Explanation)
	return r
}

// task describes a call as the task of an explanation.
func (c *Compartment) task(ctx context.Context) decision.Task {
	return decision.Task{Name: c.tenant.Key, ID: c.pool.set.requestOf(ctx), Priority: c.pool.config.Criticality}
}

func (c *Compartment) explain(ctx context.Context, d deadline, o outcome) decision.Explanation {
	e := decision.Explanation{
		Limiter: c.pool.config.Name, Outcome: decision.Started, Grant: o.grant.Grant(), Reason: o.reason, At: time.Now(),
		Waited:   o.waited,
		Task:     c.task(ctx),
		Deadline: d.at, DeadlineFrom: d.from, MaxWait: o.maxWait, Decision: o.decision, DecisionState: o.decisionState,
		InFlight: o.inFlight, QueueLen: o.queued, Bound: o.bound, Limit: o.limit, ShedBelow: o.cut, WouldReject: o.would, Mode: o.mode,
	}
	switch o.reason {
	case "":
	case decision.Canceled:
		e.Outcome = decision.OutcomeCanceled
	default:
		e.Outcome = decision.Rejected
	}
	return e
}

// proceed is the last step of a call that has its slot: it yields to new arrivals, checks context and deadline once more, and
// asks the breaker. On failure, the slot is given back.
func (k *call) proceed(ctx context.Context, yields int, d deadline, o outcome) error {
	p, s := k.pool, k.pool.set
	if o.grant > queue.Free {
		p.delayed.Add(k.c.explain(ctx, d, o))
	}
	if o.grant > queue.Free || yields > 0 {
		queue.Yield(yields, s.arrivals)
		var now time.Duration
		if d.due != queue.Never {
			now = s.clock()
		}
		if v := queue.TooLate(s.errOf(ctx), d.due, now, 0); v != queue.Waits {
			s.mu.Lock()
			k.state = ended
			o.from = d.from
			k.c.rejectLocked(&o, v, o.waited)
			o.would = ""
			k.giveBackLocked()
			s.mu.Unlock()
			return k.c.rejection(ctx, d, o)
		}
	}
	if p.config.Breaker != nil {
		if err := k.ask(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	p.refuses = false
	p.admitLocked(k)
	s.mu.Unlock()
	return nil
}

// ask asks the breaker. A call that the breaker rejects gives its slot back, and so does one whose breaker panics; no caller
// gets the error of that rejection, so ask passes it to the observer.
func (k *call) ask() (err error) {
	p, s := k.pool, k.pool.set
	o := outcome{reason: BreakerOpen, cause: errNoAnswer}
	defer func() {
		if o.cause == nil {
			return
		}
		s.mu.Lock()
		k.state = ended
		if o.cause != errNoAnswer { //nolint:errorlint // this very error, not one of the breaker
			p.refused, p.refuses = o.cause, true
		}
		k.c.describeLocked(&o)
		p.countRejectionLocked(BreakerOpen)
		k.giveBackLocked()
		s.mu.Unlock()
		err = k.c.rejection(k.Context, deadline{}, o)
		if o.cause == errNoAnswer { //nolint:errorlint // this very error, not one of the breaker
			k.c.observeRejection(k.Context, err)
		}
	}()
	k.done, o.cause = p.config.Breaker.Allow()
	return nil
}

// end reports the function's result to the breaker, and finishes the call even if the breaker panics.
func (k *call) end(result error, out decision.Outcome, err error) {
	if k.done != nil {
		defer k.finish(out, err)
		k.reportToBreaker(out, result)
		return
	}
	k.finish(out, err)
}

// finish gives the slot back, counts the outcome and notifies the observer.
func (k *call) finish(out decision.Outcome, err error) {
	k.returnSlot(endedEarly(out), func(n *counts) { n.countAnswer(out) })
	k.observeAnswer(out, err)
}

// returnSlot gives the slot of a returned function back, and counts it in the same step. cut: the function would have run for
// longer, if its context had not ended.
func (k *call) returnSlot(cut bool, count func(*counts)) {
	p, s := k.pool, k.pool.set
	if cut {
		k.span.Abandon()
	} else {
		k.span.End()
	}
	var now time.Duration
	if k.began.weight > 0 {
		now = s.clock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k.state = ended
	k.cohort.running--
	p.window.record(k.began, now, &p.counts)
	if now > 0 {
		p.cohorts.look(now)
	}
	p.counts.finished++
	count(&p.counts)
	if p.tenants != nil {
		k.c.chargeLocked(now - k.began.at)
	}
	k.giveBackLocked()
}

// reportToBreaker reports the result of a call to the breaker. Only the goroutine that ended or abandoned the call does so. Not
// every library says in its error that the caller has left: the status of gRPC is no context.Canceled. Nor does one know for whom its
// function waits; that it was a client is credible if others got an answer meanwhile.
func (k *call) reportToBreaker(out decision.Outcome, result error) {
	if k.done == nil {
		return
	}
	left := out == decision.OutcomeCanceled && errors.Is(k.Err(), context.Canceled) &&
		!errors.Is(context.Cause(k.Context), context.DeadlineExceeded)
	switch {
	case result == nil:
		k.pool.noteAnswer()
	case IsExcluded(result):
	case left, k.made != nil && k.made.Keeps(out == TimedOut, true) && k.pool.excuse(k.made.Since):
		result = fmt.Errorf("%w: %w", context.Canceled, result)
	}
	k.done(result)
}

// noteAnswer notes that somebody got an answer.
func (p *pool) noteAnswer() {
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	p.record.Answered()
}

// excuse reports whether others got answers since then, which excuse a client.
func (p *pool) excuse(since patience.Record) bool {
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	return p.record.Excuse(since)
}

// madeFor notes whether the call's function is called for a request that is served.
func (k *call) madeFor(ctx context.Context) {
	if k.done == nil {
		return
	}
	if k.made = patience.OfServed(ctx); k.made != nil {
		k.pool.set.mu.Lock()
		defer k.pool.set.mu.Unlock()
		k.made.Since = k.pool.record
	}
}

// classify sorts err, which the function returned or which ended the caller's wait, and returns the caller's error: err, or
// a TimeoutError if ctx, the function's context, ended before the caller's did. A TimeoutError in err belongs to an inner
// compartment and counts as a failure.
func (k *call) classify(ctx context.Context, err error) (decision.Outcome, error) {
	if err == nil {
		return Succeeded, nil
	}
	over := ctx.Err() // read first: when the caller's ends, so does the function's
	switch caller := k.Err(); {
	case caller != nil && !(over == context.DeadlineExceeded && caller == context.Canceled): //nolint:errorlint // what contexts say
		return decision.OutcomeCanceled, err
	case over != nil && errors.Is(err, context.DeadlineExceeded): // even if the caller has left since
		return TimedOut, k.timeout()
	case caller != nil:
		return decision.OutcomeCanceled, err
	}
	return Failed, err
}

// timeout is the error of a call whose Timeout has passed.
func (k *call) timeout() error {
	return &TimeoutError{k.pool.config.Name, k.within, k.pool.set.requestOf(k.Context)}
}

// observeAnswer passes the caller's answer to the observer.
func (k *call) observeAnswer(out decision.Outcome, err error) {
	if s := k.pool.set; s.observer != nil {
		e := Event{Kind: Answered, Err: err, Took: k.began.soFar(s)}
		e.Outcome, e.Waited, e.WouldReject = out, k.waited, k.would
		k.observe(e)
	}
}

// A call on its way into a compartment and out of it.

package bulkhead

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/queue"
	"github.com/stopbank/stopbank/warden/limiter"
)

// call is one function that was admitted. It lives as long as the function, so most are never on the heap.
type call struct {
	*mark
	c      *Compartment
	done   func(error) // tells the breaker; nil: there is none
	began  stopwatch
	waited time.Duration
	would  limiter.Reason // why a dry run would have refused it; 0: it would not have
}

// mark is the context that a function runs with. Who got it may keep it for any time: it is all of a call that has to be
// allocated, and small for that reason.
type mark struct {
	context.Context // the caller's
	part            *part
	state           state // guarded by Set.mu
}

type state uint8

// The states of a call.
const (
	runs      state = iota
	abandoned       // and still runs
	ended           // the place is given back
)

// become changes the state of a call that runs, and reports true to exactly one caller.
func (m *mark) become(next state) bool {
	s := m.part.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.state != runs {
		return false
	}
	m.state = next
	return true
}

// holds is whether the call has its place.
func (m *mark) holds() bool {
	s := m.part.set
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.state != ended
}

type markKey struct{}

// Value finds the mark itself.
func (m *mark) Value(key any) any {
	if _, ok := key.(markKey); ok {
		return m
	}
	return m.Context.Value(key)
}

// innermost is the mark of the compartment that was entered last on the way to ctx, nil if none was.
func innermost(ctx context.Context) *mark {
	m, _ := ctx.Value(markKey{}).(*mark)
	return m
}

// entered is whether ctx is that of a call that holds a place of p.
func (p *part) entered(ctx context.Context) bool {
	for m := innermost(ctx); m != nil; m = innermost(m.Context) {
		if m.part == p && m.holds() {
			return true
		}
	}
	return false
}

// outcome is what was decided about a call that could not start at once, as things stood when it was decided.
type outcome struct {
	from     limiter.DeadlineSource // of the call's deadline
	reason   limiter.Reason         // of a refusal; 0: it was granted a place
	grant    limiter.Grant
	waited   time.Duration
	patience time.Duration
	inFlight int
	queued   int
	bound    limiter.Bound
	limit    int
	cut      limiter.Priority
	decision *decision.ControlDecision
	standing limiter.Standing
	would    limiter.Reason // of a grant in a dry run
	mode     limiter.Mode
}

// A deadline is the earliest of a call's: its caller's, and the compartment's bound on its wait.
type deadline struct {
	at   time.Time
	from limiter.DeadlineSource
	due  time.Duration // by the set's clock; queue.Never: there is none
}

func (p *part) deadline(ctx context.Context, now time.Duration) deadline {
	d := deadline{due: queue.Never}
	if at, ok := ctx.Deadline(); ok {
		d = deadline{at, limiter.FromContext, min(time.Until(at), queue.Never-1-now) + now}
	}
	if most := p.config.MaxWait; most > 0 && most < d.due-now {
		d = deadline{time.Now().Add(most), p.boundedBy, now + most}
	}
	return d
}

// begin waits for a place and asks the breaker. It fills in k, and a mark unless k has one, unless there is an error.
func (c *Compartment) begin(ctx context.Context, k *call) error {
	p := c.part
	if p.entered(ctx) {
		p.refusedFor(limiter.Reentry)
		return &ReentryError{Limiter: p.config.Name}
	}
	_, bounded := ctx.Deadline()
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
	k.Context, k.part = ctx, p
	if o.would != 0 {
		p.refusals.Add(c.explain(ctx, d, o))
	}
	if o.grant > limiter.SlotFree || yields > 0 || p.config.Breaker != nil {
		if err := k.proceed(ctx, yields, d, o); err != nil {
			return err
		}
	}
	k.began.start(p.set)
	return nil
}

// startAtOnce takes a place for a call that has no deadline but perhaps its compartment's, if there is one. It is a place of
// the successor if c is a tenant that was forgotten meanwhile.
func (c *Compartment) startAtOnce(k *call) (yields int, ok bool) {
	p, s := c.part, c.part.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if c = c.present(); c.queue.Len() > 0 || !s.free(c) {
		return 0, false
	}
	p.counts.submitted++
	if yields = p.rule.Yields; yields == 0 && p.config.Breaker == nil {
		p.admit(k)
	}
	s.take(c)
	s.settle(c)
	k.c = c
	return yields, true
}

// admit counts a call whose function runs now. The caller holds Set.mu.
func (p *part) admit(k *call) {
	p.counts.admitted++
	k.began.weight = p.window.weigh(p.set.observer != nil)
}

// wait gets a place, perhaps after waiting for it, or says why not.
func (c *Compartment) wait(ctx context.Context, k *call) (deadline, outcome, error) {
	p, s := c.part, c.part.set
	now := s.clock()
	d, err, done, draw, open := p.deadline(ctx, now), ctx.Err(), ctx.Done(), rand.Float64(), p.saysOpen()
	w := s.waiters.Get()
	w.Priority, w.Due, w.Outcome = int8(p.config.Criticality), d.due, outcome{from: d.from}
	s.mu.Lock()
	c = c.present()
	p.counts.submitted++
	v := queue.TooLate(err, d.due, now, 0)
	switch {
	case v != queue.Waits:
		c.refuse(&w.Outcome, v, 0)
	case c.queue.Len() == 0 && s.free(c):
		s.take(c)
		c.look(&w.Outcome)
		w.Outcome.grant = limiter.SlotFree
		if p.rule.Yields == 0 && p.config.Breaker == nil {
			p.admit(k)
		}
	case p.share.Mode != limiter.Enforce:
		c.look(&w.Outcome)
		k.would = c.rehearse(&w.Outcome, d, now, draw)
		w.Outcome.grant = limiter.SlotFree
		if p.rule.Yields == 0 && p.config.Breaker == nil {
			p.admit(k)
		}
	case open:
		p.countRefusal(limiter.BreakerOpen)
		s.mu.Unlock()
		s.waiters.Put(w)
		return d, outcome{}, p.breakerSays(ctx, errOpen)
	case c.queue.Limit == 0:
		c.refuse(&w.Outcome, queue.Full, 0)
	default:
		if v = c.queue.Offer(w, now, p.waitingRule(), draw); v != queue.Waits {
			c.refuse(&w.Outcome, v, 0)
		}
	}
	s.settle(c)
	waits := w.Waiting()
	s.mu.Unlock()
	if waits {
		for over := false; !over && !w.Wait(done, s.clock(), 0); {
			over = c.leave(ctx, w)
		}
		w.Outcome.patience = w.Patience
	}
	o := w.Outcome
	s.waiters.Put(w)
	if o.reason != 0 {
		return d, o, c.rejection(ctx, d, o)
	}
	k.c = c
	return d, o, nil
}

// leave takes a call that waits out of the queue, if it must not start any more. It is over also if somebody else was faster.
func (c *Compartment) leave(ctx context.Context, w *queue.Waiter[outcome]) (over bool) {
	s := c.part.set
	err := s.errOf(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.Waiting() {
		w.Woken()
		return true
	}
	now := s.clock()
	v := w.TooLate(err, now, 0)
	if v == queue.Waits {
		return false
	}
	c.queue.Remove(w, v, now)
	c.refuse(&w.Outcome, v, now-w.Since)
	s.settle(c)
	return true
}

// waitingRule is what those who wait need to know of the decision. What is expected of a call only says how long a burst is: the
// deadline of most calls bounds their wait, and not their work.
func (p *part) waitingRule() queue.Rule {
	return queue.Rule{Burst: max(p.rule.Burst, p.window.usual), Share: p.rule.ShedProbability}
}

// saysOpen is whether the breaker says that it is open. One that panics says nothing.
func (p *part) saysOpen() bool {
	if p.open == nil {
		return false
	}
	defer p.set.contain()
	return p.open()
}

// look notes how things stand. The caller holds Set.mu, as for the next three.
func (c *Compartment) look(o *outcome) {
	p, s := c.part, c.part.set
	cut, _ := c.queue.Cut(p.rule.ShedProbability)
	o.inFlight, o.queued, o.cut, o.decision, o.standing = c.held+c.beyond, c.queue.Len(), limiter.Priority(cut), p.rule, s.standing
	o.mode = p.share.Mode
}

// granted tells a call that has been taken out of the queue that it has its place.
func (c *Compartment) granted(w *queue.Waiter[outcome], how queue.Verdict, now time.Duration) {
	c.look(&w.Outcome)
	w.Outcome.grant, w.Outcome.waited = limiter.QueueOldest, now-w.Since
	if how == queue.Newest {
		w.Outcome.grant = limiter.QueueNewest
	}
	w.Wake()
}

// dismiss is told by the queue whom it has let go.
func (c *Compartment) dismiss(w *queue.Waiter[outcome], why queue.Verdict, now time.Duration) {
	c.refuse(&w.Outcome, why, now-w.Since)
	w.Wake()
}

// refuse counts a refusal, and notes how things stand.
func (c *Compartment) refuse(o *outcome, why queue.Verdict, waited time.Duration) {
	c.look(o)
	o.reason, o.waited, o.grant = named(reasonOf(why), o.from), waited, 0
	if waited > 0 || o.reason < limiter.DeadlineExceeded {
		o.bound, o.limit = c.part.set.full(c)
	}
	c.part.countRefusal(o.reason)
}

// rejection is what the caller is told, and recorded. A wait that was too long for the compartment is a timeout; one that was
// too long for the caller's own deadline is not.
func (c *Compartment) rejection(ctx context.Context, d deadline, o outcome) error {
	p := c.part
	r := &limiter.Rejection{Explanation: c.explain(ctx, d, o)}
	switch o.reason {
	case limiter.Canceled:
		r.Cause = p.set.errOf(ctx)
	case limiter.DeadlineExceeded, limiter.TimeoutQueued:
		r.Cause = context.DeadlineExceeded
	}
	p.refusals.Add(r.Explanation)
	if o.reason == limiter.TimeoutQueued {
		return &TimeoutError{p.config.Name, Queued, p.config.MaxWait, r, r.Task.ID}
	}
	return r
}

func (c *Compartment) explain(ctx context.Context, d deadline, o outcome) limiter.Explanation {
	e := limiter.Explanation{
		Limiter: c.part.config.Name, Outcome: limiter.Started, Grant: o.grant, Reason: o.reason, At: time.Now(), Waited: o.waited,
		Task:     limiter.Task{Name: c.key, ID: c.part.set.requestOf(ctx), Priority: c.part.config.Criticality},
		Deadline: d.at, DeadlineFrom: d.from, Patience: o.patience, Decision: o.decision, Standing: o.standing,
		InFlight: o.inFlight, QueueLen: o.queued, Bound: o.bound, Limit: o.limit, Cut: o.cut, WouldReject: o.would, Mode: o.mode,
	}
	switch o.reason {
	case 0:
	case limiter.Canceled:
		e.Outcome = limiter.Withdrawn
	default:
		e.Outcome = limiter.Rejected
	}
	return e
}

// proceed is the last step of a call that has its place: it lets others arrive, looks whether it is too late, and asks the
// breaker. Unless all goes well, the place is given back.
func (k *call) proceed(ctx context.Context, yields int, d deadline, o outcome) error {
	p, s := k.part, k.part.set
	if o.grant > limiter.SlotFree {
		p.delayed.Add(k.c.explain(ctx, d, o))
	}
	if o.grant > limiter.SlotFree || yields > 0 {
		queue.Yield(yields, s.arrivals)
		var now time.Duration
		if d.due != queue.Never {
			now = s.clock()
		}
		if v := queue.TooLate(s.errOf(ctx), d.due, now, 0); v != queue.Waits {
			s.mu.Lock()
			k.state = ended
			o.from = d.from
			k.c.refuse(&o, v, o.waited)
			o.would = 0
			k.giveBack()
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
	p.admit(k)
	s.mu.Unlock()
	return nil
}

// ask asks the breaker. A call that it lets nothing of gives its place back. So does one whose breaker panics; that is a
// refusal of which nobody gets the error, so it is told here.
func (k *call) ask() error {
	p, s := k.part, k.part.set
	why := errNoAnswer
	defer func() {
		if why == nil {
			return
		}
		s.mu.Lock()
		k.state = ended
		p.countRefusal(limiter.BreakerOpen)
		k.giveBack()
		s.mu.Unlock()
		if why == errNoAnswer { //nolint:errorlint // this one, not one of the breaker
			k.c.observeRefusal(k.Context, p.breakerSays(k.Context, why))
		}
	}()
	k.done, why = p.config.Breaker.Allow()
	if why != nil {
		return p.breakerSays(k.Context, why)
	}
	return nil
}

// breakerSays is what the caller with ctx is told of a breaker that lets nothing pass.
func (p *part) breakerSays(ctx context.Context, why error) error {
	return &BreakerOpenError{p.config.Name, why, p.set.requestOf(ctx)}
}

// end tells the breaker what came of a function that has returned, and finishes the call whatever the breaker does.
func (k *call) end(verdict error, out Outcome, err error) {
	if k.done != nil {
		defer k.finish(out, err)
		k.done(verdict)
		return
	}
	k.finish(out, err)
}

// finish gives the place back, counts what the caller is told, and tells the observer.
func (k *call) finish(out Outcome, err error) {
	k.leave(func(n *counts) { n.outcomes[out]++ })
	k.answered(out, err)
}

// leave gives the place of a function that has returned back, and counts it in the same step.
func (k *call) leave(count func(*counts)) {
	p, s := k.part, k.part.set
	var now time.Duration
	if k.began.weight > 0 {
		now = s.clock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k.state = ended
	p.window.record(k.began, now, &p.counts)
	p.counts.finished++
	count(&p.counts)
	k.giveBack()
}

// tell tells the breaker. Only who has ended or abandoned the call does so.
func (k *call) tell(verdict error) {
	if k.done != nil {
		k.done(verdict)
	}
}

// judge is the outcome of a function that returned err, or was waited for until err, and what its caller is told: err, or a
// timeout if err is of ctx, the function's context, having ended before the caller's did. A timeout that is err already is
// an inner compartment's, and so a failure.
func (k *call) judge(ctx context.Context, err error) (Outcome, error) {
	if err == nil {
		return Succeeded, nil
	}
	over := ctx.Err() // asked first: when the caller's ends, so does the function's
	switch caller := k.Err(); {
	case caller != nil && !(over == context.DeadlineExceeded && caller == context.Canceled): //nolint:errorlint // what contexts say
		return Canceled, err
	case over != nil && errors.Is(err, context.DeadlineExceeded): // also if the caller has left since
		return TimedOut, &TimeoutError{k.part.config.Name, Running, k.part.config.Timeout, nil, k.part.set.requestOf(k.Context)}
	case caller != nil:
		return Canceled, err
	}
	return Failed, err
}

// answered tells the observer what the caller is told.
func (k *call) answered(out Outcome, err error) {
	if s := k.part.set; s.observer != nil {
		k.observe(Event{Kind: Answered, Outcome: out, Err: err, Waited: k.waited, Took: k.began.soFar(s), WouldReject: k.would})
	}
}

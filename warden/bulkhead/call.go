// A call on its way into a compartment and out of it.

package bulkhead

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
)

// call is one function that was admitted. It lives as long as the function, so most are never on the heap.
type call struct {
	*mark
	c      *Compartment
	permit limiter.Permit
	done   func(error) // tells the breaker; nil: there is none
	began  stopwatch
	waited time.Duration // for the observer
}

// mark is the context that a function runs with. Who got it may keep it for any time: it is all of a call that has to be
// allocated, and small for that reason.
type mark struct {
	context.Context // the caller's
	part            *part
	state           atomic.Uint32
}

// The states of a call.
const (
	runs      = iota
	abandoned // and still runs
	ended     // the place is given back
)

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

// begin waits for a place and asks the breaker. It fills in k, and a mark unless k has one, unless there is an error.
func (c *Compartment) begin(ctx context.Context, k *call) error {
	p := c.part
	for m := innermost(ctx); m != nil; m = innermost(m.Context) {
		if m.part == p && m.state.Load() != ended {
			p.tally.reentries.Add(1)
			return &ReentryError{p.config.Name}
		}
	}
	if c.tenant {
		c = c.enter()
	}
	t := limiter.Task{Name: c.key, Priority: p.config.Criticality}
	if p.config.MaxWait > 0 {
		t.Deadline = time.Now().Add(p.config.MaxWait)
	}
	permit, err := c.limiter.Acquire(ctx, t)
	if c.tenant && (err != nil || permit.Explain().Grant != limiter.SlotFree) {
		c.grown.Store(true)
	}
	if err != nil {
		c.exit()
		return p.refusal(ctx, t, err)
	}
	if k.mark == nil {
		k.mark = new(mark)
	}
	k.Context, k.part, k.c, k.permit = ctx, p, c, permit
	if p.set.observer != nil {
		k.waited = permit.Explain().Waited
	}
	if p.config.Breaker != nil {
		if err := k.ask(); err != nil {
			return err
		}
	}
	k.began = p.window.begin(p.set.observer != nil)
	return nil
}

// refusal is what the caller is told when the limiter refused: the wait's bound is this package's own, so that it is a
// timeout, unless the caller's deadline was earlier.
func (p *part) refusal(ctx context.Context, t limiter.Task, err error) error {
	var r *limiter.Rejection
	if !errors.As(err, &r) {
		return err
	}
	if p.tenants != nil {
		p.tenants.recent.add(r.Explain())
	}
	if r.Reason == limiter.Canceled {
		return err
	}
	p.refused()
	if r.Reason != limiter.DeadlineExceeded || t.Deadline.IsZero() {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !t.Deadline.Before(d) {
		return err
	}
	p.tally.queueTimeouts.Add(1)
	return &TimeoutError{p.config.Name, Queued, p.config.MaxWait, r}
}

// refused counts a refusal that is to be seen in RejectionRate.
func (p *part) refused() {
	p.window.at(p.window.now(), p)
	p.tally.refused.Add(1)
}

// ask asks the breaker. A call that it lets nothing of gives its place back. So does one whose breaker panics; that is a
// refusal of which nobody gets the error, so it is told here.
func (k *call) ask() error {
	p := k.part
	why := errNoAnswer
	defer func() {
		if why == nil {
			return
		}
		p.tally.breakerOpen.Add(1)
		p.refused()
		k.release()
		if why == errNoAnswer { //nolint:errorlint // this one, not one of the breaker
			k.c.observeRefusal(&BreakerOpenError{p.config.Name, why})
		}
	}()
	k.done, why = p.config.Breaker.Allow()
	if why != nil {
		return &BreakerOpenError{p.config.Name, why}
	}
	return nil
}

// end is finish, and then answer, whatever the breaker does.
func (k *call) end(verdict error, out Outcome, err error) {
	if k.done != nil {
		defer k.answer(out, err)
		k.finish(verdict)
		return
	}
	k.finish(verdict)
	k.answer(out, err)
}

// finish ends a call whose function has returned: the breaker is told the verdict, and the place is given back, whatever
// the breaker does.
func (k *call) finish(verdict error) {
	k.record()
	if k.done == nil {
		k.release()
		return
	}
	defer k.release()
	k.done(verdict)
}

// record notes how long the function ran.
func (k *call) record() {
	p := k.part
	p.window.record(k.began, p)
	if p.tenants != nil {
		p.tally.finished.Add(1)
	}
}

// tell tells the breaker. Only who has ended or abandoned the call does so.
func (k *call) tell(verdict error) {
	if k.done != nil {
		k.done(verdict)
	}
}

// release gives the place back.
func (k *call) release() {
	k.state.Store(ended)
	k.permit.Release()
	if k.c.tenant {
		k.c.exit()
	}
}

// judge is the outcome of a function that returned err, or was waited for until err, and what its caller is told: err, or a
// timeout if err is of ctx, the function's context, having ended before the caller's did. A timeout that is err already is
// an inner compartment's, and so a failure.
func (k *call) judge(ctx context.Context, err error) (Outcome, error) {
	if err == nil {
		return Succeeded, nil
	}
	over := ctx.Err() != nil // asked first: when the caller's ends, so does the function's
	switch {
	case k.Err() != nil:
		return Canceled, err
	case over && errors.Is(err, context.DeadlineExceeded):
		return TimedOut, &TimeoutError{Compartment: k.part.config.Name, Phase: Running, After: k.part.config.Timeout}
	}
	return Failed, err
}

// answer counts what the caller is told, and tells the observer.
func (k *call) answer(out Outcome, err error) {
	p := k.part
	p.tally.answered(out)
	if p.set.observer != nil {
		p.set.observe(Event{
			Kind: Answered, Compartment: p.config.Name, Tenant: k.c.key, Outcome: out, Err: err,
			Waited: k.waited, Took: k.began.soFar(&p.window),
		})
	}
}

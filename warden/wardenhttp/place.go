// A place, whoever gives it, a warden or a compartment, and what they are told when a request gives it back.

package wardenhttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/stopbank/stopbank/admission/admissionhttp/inflight"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/internal/wire"
)

// capacity is whom requests ask for their place.
type capacity struct {
	warden      *warden.Warden                            // nil only if there is a compartment
	compartment func(*http.Request) *bulkhead.Compartment // nil: the warden itself is asked
}

// check says what is wrong with it.
func (c capacity) check() error {
	switch {
	case c.warden == nil && c.compartment == nil:
		return &warden.InvalidError{Field: "w", Value: "nil", Allowed: "a warden made by warden.New; nil only with compartments"}
	case c.warden != nil && c.warden.Limiter() == nil:
		return notMade("w", "warden.New")
	}
	return nil
}

// whom is the compartment that r asks; nil: the warden, or a compartment that there is not.
func (c capacity) whom(r *http.Request) *bulkhead.Compartment {
	if c.compartment == nil {
		return nil
	}
	return c.compartment(r)
}

// holds is whether the work of ctx has its place already.
func (c capacity) holds(ctx context.Context, asked *bulkhead.Compartment) bool {
	if c.compartment == nil {
		return c.warden.Holds(ctx)
	}
	return asked.Holds(ctx)
}

// A claim is what a request asks for.
type claim struct {
	asked *bulkhead.Compartment // nil: the warden
	task  warden.Task           // of a compartment, the deadline alone; its priority is what goes on from here
	// patience says that the deadline is a stranger's word.
	patience bool
}

// place is what one request holds. The zero place is none.
type place struct {
	ctx         context.Context       // to go on with: it ends with the deadline, and knows the priority and who has given the place
	asked       *bulkhead.Compartment // nil: the warden
	warden      warden.Permit
	compartment bulkhead.Permit
	patience    *wire.Patience // in ctx; nil: there is none
	cancel      func()         // of the deadline in ctx; nil: there is none
}

// acquire asks for the place of work with ctx. With an error the place says only who was asked.
func (c capacity) acquire(ctx context.Context, is claim) (p place, err error) {
	p.ctx, p.asked = ctx, is.asked
	given := false
	defer func() {
		if !given && p.cancel != nil {
			p.cancel()
		}
	}()
	if said := warden.PriorityFrom(ctx); said != is.task.Priority && (c.compartment != nil || is.task.Priority == warden.Normal) {
		p.ctx = warden.WithPriority(p.ctx, is.task.Priority) // which no task of the warden's will say
	}
	if c.compartment == nil {
		if p.ctx, p.warden, err = c.warden.Acquire(p.ctx, is.task); err != nil {
			return p, err
		}
		p.bound(is)
	} else {
		if c.warden != nil {
			c.warden.Watch() // its decisions rule the compartments, but nobody asks it for places
		}
		p.bound(is) // a compartment knows no tasks: the deadline goes to it in the context
		if p.ctx, p.compartment, err = p.asked.Acquire(p.ctx); err != nil {
			return p, err
		}
	}
	given = true
	if p.patience != nil {
		p.patience.Start()
	}
	return p, nil
}

// bound lets ctx end with the deadline.
func (p *place) bound(is claim) {
	due := is.task.Deadline
	switch {
	case !wire.Sooner(due, p.ctx):
	case is.patience:
		p.patience = wire.NewPatience(p.ctx, due)
		p.ctx, p.cancel = p.patience, p.patience.Stop
	default:
		p.ctx, p.cancel = context.WithDeadline(p.ctx, due)
	}
}

// earlier is the earlier of two deadlines, of which zero is none, and whether it is the second.
func earlier(a, b time.Time) (time.Time, bool) {
	if b.IsZero() || !a.IsZero() && !b.Before(a) {
		return a, false
	}
	return b, true
}

// errStatus is what the breaker of a compartment is told of a response that says nothing worse.
var errStatus = errors.New("wardenhttp: the response has a status of 500 or more")

// End gives the place back. If somebody lost interest, or the connection was upgraded, the time that it took says nothing
// about the service.
func (p place) End(came inflight.Outcome) {
	err := came.Err
	if err == nil && came.Status >= http.StatusInternalServerError {
		err = errStatus
	}
	if came.Upgraded || errors.Is(err, context.Canceled) {
		p.warden.Discard()
	} else {
		p.warden.Release()
	}
	p.compartment.Release(err)
	if p.cancel != nil {
		p.cancel()
	}
}

func notMade(what, by string) error {
	return &warden.InvalidError{Field: what, Value: "zero", Allowed: "one made by " + by}
}

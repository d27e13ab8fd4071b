// A place, whoever gives it, a warden or a compartment, and what they are told when a request gives it back.

package wardenhttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/stopbank/stopbank/admission/admissionhttp/inflight"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
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

// place is what one request holds. The zero place is none.
type place struct {
	ctx         context.Context       // to go on with
	asked       *bulkhead.Compartment // nil: the warden
	warden      warden.Permit
	compartment bulkhead.Permit
	cancel      context.CancelFunc // of the deadline in ctx; nil: there is none
}

// acquire asks for a place for r. A compartment knows no tasks: the deadline goes to it in the context, and the rest of t
// is not used. With an error the place says only who was asked.
func (c capacity) acquire(r *http.Request, t warden.Task) (place, error) {
	p := place{ctx: r.Context()}
	var err error
	if c.compartment == nil {
		p.warden, err = c.warden.Acquire(p.ctx, t)
		return p, err
	}
	if c.warden != nil {
		c.warden.Watch() // its decisions rule the compartments, but nobody asks it for places
	}
	p.asked = c.compartment(r)
	if !t.Deadline.IsZero() {
		p.ctx, p.cancel = context.WithDeadline(p.ctx, t.Deadline)
	}
	given := false
	defer func() {
		if !given && p.cancel != nil {
			p.cancel()
		}
	}()
	p.ctx, p.compartment, err = p.asked.Acquire(p.ctx)
	given = err == nil
	return p, err
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

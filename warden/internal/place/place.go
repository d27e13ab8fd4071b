// Package place asks for the place of a request, whoever gives it, a warden or a compartment, and gives it back. It is what the
// adapters for HTTP and gRPC have in common.
package place

import (
	"context"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/internal/requestid"
)

// Claim is what a request asks for, and of whom.
type Claim struct {
	Warden      *warden.Warden // with compartments the one whose decisions rule them, or nil
	Apart       bool           // a compartment is asked, and not the warden
	Compartment *bulkhead.Compartment
	// Task is what the warden is asked for. To a compartment, its deadline and ID alone matter; its priority is what goes on from here. Its
	// priority is final: Normal is not that of the context.
	Task warden.Task
	// Patience says that the task's deadline is a stranger's word.
	Patience bool
}

// Holds is whether the work of ctx has this place already.
func (c *Claim) Holds(ctx context.Context) bool {
	if c.Apart {
		return c.Compartment.Holds(ctx)
	}
	return c.Warden.Holds(ctx)
}

// Bound lets the task have this deadline too; zero is none. theirs: it is the word of a stranger, and counts as his if it is the earliest.
func (c *Claim) Bound(due time.Time, theirs bool) {
	if t := &c.Task; !due.IsZero() && (t.Deadline.IsZero() || due.Before(t.Deadline)) {
		t.Deadline, c.Patience = due, theirs
	}
}

// Place is what one request holds. The zero Place is none.
type Place struct {
	Ctx         context.Context // to go on with: it ends with the deadline, and knows the priority and who has given the place
	warden      warden.Permit
	compartment bulkhead.Permit
	patience    *patience // in Ctx; nil: there is none
	cancel      func()    // of the deadline in Ctx; nil: there is none
}

// Acquire asks for the place of work with ctx. With an error there is none, and nothing left of it.
func (c *Claim) Acquire(ctx context.Context) (p Place, err error) {
	given := false
	defer func() {
		if !given && p.cancel != nil {
			p.cancel()
		}
	}()
	if said := warden.PriorityFrom(ctx); said != c.Task.Priority && (c.Apart || c.Task.Priority == warden.Normal) {
		ctx = warden.WithPriority(ctx, c.Task.Priority) // which no task of the warden's will say
	}
	if c.Apart {
		if c.Task.ID != "" {
			ctx = requestid.With(ctx, c.Task.ID)
		}
		if c.Warden != nil {
			c.Warden.Watch() // its decisions rule the compartments, but nobody asks it for places
		}
		ctx, p.patience, p.cancel = c.within(ctx) // a compartment knows no tasks: deadline and ID go to it in the context
		if p.Ctx, p.compartment, err = c.Compartment.Acquire(ctx); err != nil {
			return p, err
		}
	} else {
		if ctx, p.warden, err = c.Warden.Acquire(ctx, c.Task); err != nil {
			return p, err
		}
		p.Ctx, p.patience, p.cancel = c.within(ctx)
	}
	given = true
	if p.patience != nil {
		p.patience.start()
	}
	return p, nil
}

// within is ctx with the deadline, if that is earlier than its own.
func (c *Claim) within(ctx context.Context) (context.Context, *patience, func()) {
	due := c.Task.Deadline
	at, bounded := ctx.Deadline()
	switch {
	case due.IsZero(), bounded && !due.Before(at):
		return ctx, nil, nil
	case c.Patience:
		p := newPatience(ctx, due)
		return p, p, p.stop
	}
	ctx, cancel := context.WithDeadline(ctx, due)
	return ctx, nil, cancel
}

// End gives the place back. err is what came of the request, for a breaker and for statistics. silent: the time that it took says
// nothing about the service, and is not told to the warden.
func (p Place) End(err error, silent bool) {
	if silent {
		p.warden.Discard()
	} else {
		p.warden.Release()
	}
	p.compartment.Release(err)
	if p.cancel != nil {
		p.cancel()
	}
}

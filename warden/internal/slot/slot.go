// SPDX-License-Identifier: Apache-2.0

// Package slot acquires the slot of a request, from a warden or from a compartment, and releases it. The adapters for HTTP
// and gRPC share it.
package slot

import (
	"context"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/requestid"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
)

// Claim says which slot a request needs, and from where.
type Claim struct {
	Warden          *warden.Warden // with compartments, the one whose decisions they follow, or nil
	FromCompartment bool           // the slot is the compartment's, not the warden's
	Compartment     *bulkhead.Compartment
	// Task is the task for the warden. A compartment uses its deadline and ID only; the priority is passed on with requests
	// that the work sends. The priority is final: Normal does not stand for that of the context.
	Task warden.Task
	// Arrived is when the request came, from which the times below count.
	Arrived time.Time
	// Service, Trusted and Stranger are how long the work may take, as the service itself, a trusted client, and an untrusted one
	// say; 0: unlimited. Each may stand still and begin anew while the work runs; the task's deadline does not move.
	Service, Trusted, Stranger time.Duration
	// StrangersContext: the deadline of the request's context is an untrusted client's too.
	StrangersContext bool
}

// Holds reports whether the work of ctx holds this slot already.
func (c *Claim) Holds(ctx context.Context) bool {
	if c.FromCompartment {
		return c.Compartment.Holds(ctx)
	}
	return c.Warden.Holds(ctx)
}

// Tell notes how long a client says that it waits.
func (c *Claim) Tell(d time.Duration, trusted bool) {
	if trusted {
		c.Trusted = d
	} else {
		c.Stranger = d
	}
}

// Slot is the slot of one request. The zero Slot is none.
type Slot struct {
	Ctx         context.Context    // of the work: it ends with the deadline, carries the priority, and marks the slot as held
	Time        *timelimit.Context // among the parents of Ctx, the innermost that may move; nil: none
	Impatient   bool               // the work ends at an untrusted client's own deadline, if not before
	warden      warden.Permit
	compartment bulkhead.Permit
	cancel      func() // of the deadlines in Ctx; nil: there are none
}

// Acquire waits for the slot of work with ctx. With an error, nothing has to be released.
func (c *Claim) Acquire(ctx context.Context) (p Slot, err error) {
	acquired := false
	defer func() {
		if !acquired && p.cancel != nil {
			p.cancel()
		}
	}()
	if current := warden.PriorityFrom(ctx); current != c.Task.Priority &&
		(c.FromCompartment || c.Task.Priority == decision.Normal) {
		ctx = warden.WithPriority(ctx, c.Task.Priority) // no task of the warden will set it
	}
	if c.FromCompartment {
		if c.Task.ID != "" {
			ctx = requestid.With(ctx, c.Task.ID)
		}
		if c.Warden != nil {
			c.Warden.SampleIfDue() // compartments follow its decisions, and no request acquires its slots
		}
		ctx, p.Time, p.cancel = c.bounded(ctx) // a compartment takes deadline and ID from the context
		if p.Ctx, p.compartment, err = c.Compartment.Acquire(ctx); err != nil {
			return p, err
		}
	} else {
		t := c.Task
		due, _ := c.moves()
		t.Deadline = earliest(t.Deadline, due)
		if ctx, p.warden, err = c.Warden.Acquire(ctx, t); err != nil {
			return p, err
		}
		p.Ctx, p.Time, p.cancel = c.bounded(ctx)
	}
	acquired = true
	p.Time.Start()
	p.Impatient = p.Time.Strangers()
	if c.FromCompartment {
		p.Time = timelimit.Of(p.Ctx) // it may have a Timeout
	}
	return p, nil
}

// governor returns who may only observe.
func (c *Claim) governor() timelimit.Governor {
	if c.FromCompartment {
		return c.Compartment
	}
	return c.Warden.Limiter()
}

// moves returns the earliest deadline that may move, and whose it is; zero: none.
func (c *Claim) moves() (due time.Time, whose timelimit.Whose) {
	for of, d := range [...]time.Duration{c.Service, c.Trusted, c.Stranger} {
		if d <= 0 {
			continue
		}
		if at := c.Arrived.Add(d); due.IsZero() || at.Before(due) {
			due, whose = at, timelimit.Whose(of)
		}
	}
	return due, whose
}

// bounded returns ctx with the deadlines that are earlier than its own, and the one that may move; it has to be started.
func (c *Claim) bounded(ctx context.Context) (context.Context, *timelimit.Context, func()) {
	fixed := c.Task.Deadline
	due, whose := c.moves()
	at, _, bounded := timelimit.Due(ctx)
	if bounded && c.StrangersContext {
		due, whose = earliest(due, at), timelimit.StrangersAll
	}
	var moving *timelimit.Context
	var cancel func()
	if !due.IsZero() && (fixed.IsZero() || due.Before(fixed)) && (!bounded || due.Before(at) || whose == timelimit.StrangersAll) {
		moving = timelimit.New(ctx, c.governor(), whose, due, due.Sub(c.Arrived), context.DeadlineExceeded)
		ctx, cancel = moving, moving.Stop
	}
	if fixed.IsZero() || bounded && !fixed.Before(at) {
		return ctx, moving, cancel
	}
	within, end := context.WithDeadline(ctx, fixed)
	return within, moving, func() { end(); moving.Stop() }
}

// earliest returns the earlier of two times; the zero time is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Ending is what the execution time of a request says about the service.
type Ending uint8

// How a request ended.
const (
	Completed Ending = iota // how long the work takes
	Abandoned               // less than that: its deadline or its client ended it
	Discarded               // nothing
)

// Answer is what the client got, whatever the time says.
type Answer uint8

// How a request was answered.
const (
	Served   Answer = iota
	Unserved        // its client left, or its deadline passed, before it had an answer
	Failed          // the service answered with an error of its own, or panicked
)

// Without returns the same slot, whose execution time is d less: the work only waited for its client.
func (p Slot) Without(d time.Duration) Slot {
	p.warden, p.compartment = p.warden.Without(d), p.compartment.Without(d)
	return p
}

// End releases the slot. err is the result of the request, for a breaker and for statistics.
func (p Slot) End(err error, ending Ending, answer Answer) {
	switch answer {
	case Served:
	case Unserved:
		p.warden = p.warden.Unserved()
	case Failed:
		p.warden = p.warden.Failed()
	}
	switch ending {
	case Completed:
		p.warden.Release()
		p.compartment.Release(err)
	case Abandoned:
		p.warden.Abandon()
		p.compartment.Release(err)
	case Discarded:
		p.warden.Discard()
		p.compartment.Discard(err)
	}
	if p.cancel != nil {
		p.cancel()
	}
}

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
)

// Claim says which slot a request needs, and from where.
type Claim struct {
	Warden          *warden.Warden // with compartments, the one whose decisions they follow, or nil
	FromCompartment bool           // the slot is the compartment's, not the warden's
	Compartment     *bulkhead.Compartment
	// Task is the task for the warden. A compartment uses its deadline and ID only; the priority is passed on with requests
	// that the work sends. The priority is final: Normal does not stand for that of the context.
	Task warden.Task
	// Client is the deadline that an untrusted client chose; zero: none.
	Client time.Time
	// ClientContext: the deadline of the request's context is an untrusted client's too.
	ClientContext bool
}

// Holds reports whether the work of ctx holds this slot already.
func (c *Claim) Holds(ctx context.Context) bool {
	if c.FromCompartment {
		return c.Compartment.Holds(ctx)
	}
	return c.Warden.Holds(ctx)
}

// Bound adds a deadline: the earliest applies. The zero time is none. untrusted: an untrusted client chose it.
func (c *Claim) Bound(due time.Time, untrusted bool) {
	if untrusted {
		c.Client = earliest(c.Client, due)
	} else {
		c.Task.Deadline = earliest(c.Task.Deadline, due)
	}
}

// Slot is the slot of one request. The zero Slot is none.
type Slot struct {
	Ctx            context.Context // of the work: it ends with the deadline, carries the priority, and marks the slot as held
	warden         warden.Permit
	compartment    bulkhead.Permit
	clientDeadline *clientDeadline // in Ctx; nil: there is none
	cancel         func()          // of the deadline in Ctx; nil: there is none
}

// Impatient reports whether the work ends at an untrusted client's own deadline, if not before.
func (p Slot) Impatient() bool { return p.clientDeadline != nil }

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
		ctx, p.clientDeadline, p.cancel = c.bounded(ctx) // a compartment takes deadline and ID from the context
		if p.Ctx, p.compartment, err = c.Compartment.Acquire(ctx); err != nil {
			return p, err
		}
	} else {
		t := c.Task
		t.Deadline = earliest(t.Deadline, c.Client)
		if ctx, p.warden, err = c.Warden.Acquire(ctx, t); err != nil {
			return p, err
		}
		p.Ctx, p.clientDeadline, p.cancel = c.bounded(ctx)
	}
	acquired = true
	if p.clientDeadline != nil {
		p.clientDeadline.start()
	}
	return p, nil
}

// bounded returns ctx with the deadlines that are earlier than its own.
func (c *Claim) bounded(ctx context.Context) (context.Context, *clientDeadline, func()) {
	own, client := c.Task.Deadline, c.Client
	at, _, bounded := Due(ctx)
	if bounded && c.ClientContext {
		p := newClientDeadline(ctx, earliest(client, at), own, true)
		if own.IsZero() || !own.Before(p.due) {
			return p, p, p.stop
		}
		within, cancel := context.WithDeadline(p, own)
		return within, p, func() { cancel(); p.stop() }
	}
	if first := earliest(own, at); !client.IsZero() && (first.IsZero() || client.Before(first)) {
		at, _ = ctx.Deadline()
		p := newClientDeadline(ctx, client, earliest(own, at), false)
		return p, p, p.stop
	}
	if own.IsZero() || bounded && !own.Before(at) {
		return ctx, nil, nil
	}
	within, cancel := context.WithDeadline(ctx, own)
	return within, nil, cancel
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

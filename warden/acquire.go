// SPDX-License-Identifier: Apache-2.0

// Running under a warden: the limiter's calls, timed for the monitor.

package warden

import (
	"context"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/requestid"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Permit is one slot held by one task. It is a small value, free to copy and to release from any goroutine: all copies
// together release once. The zero Permit releases nothing.
type Permit struct {
	permit limiter.Permit
	span   monitor.Span
	task   *taskContext // nil: the task has no context
	ending ending
}

// ending is how the limiter counts a task.
type ending uint8

const (
	answered ending = iota
	unserved
	failed
)

// Unserved returns the same permit, by which Release and Discard count the task in [limiter.Tally].Abandoned: its client had left
// before there was an answer, although the work was done to its end.
func (p Permit) Unserved() Permit {
	p.ending = unserved
	return p
}

// Failed returns the same permit, by which Release and Discard count the task in [limiter.Tally].Failed: it was answered with an
// error of the service, or not at all because its work panicked.
func (p Permit) Failed() Permit {
	p.ending = failed
	return p
}

// Without returns the same permit, by which Release and Abandon report d less as the execution time: the task only waited for its
// client.
func (p Permit) Without(d time.Duration) Permit {
	p.span = p.span.Without(d)
	return p
}

// Release ends the task, reports its execution time to the monitor, and returns true to exactly one caller: the first. It calls
// the limiter's Observer, if there is one; apart from that it does not block and allocates nothing.
func (p Permit) Release() bool {
	if !p.end() {
		return false
	}
	p.span.End()
	return true
}

// Abandon is Release for a task that its deadline or its client ended before it had an answer: its execution time is less than the
// work takes, and the work may go on where nobody sees it. The monitor only counts it, and so does [limiter.Tally].Abandoned.
func (p Permit) Abandon() bool {
	if !p.Unserved().end() {
		return false
	}
	p.span.Abandon()
	return true
}

// Discard is Release without reporting the execution time, for tasks whose time says nothing about the service: a hijacked
// connection, or a stream.
func (p Permit) Discard() bool {
	if !p.end() {
		return false
	}
	p.span.Discard()
	return true
}

// Park gives the slot back, although the task is still to be released: it has begun its answer, and from now on only waits for
// events to tell its client, as an event stream or a watch does. It is counted in [limiter.Tally].Parked, and no part of what control
// judges. Park reports whether that is so: no more tasks may be parked than the decision says, and none at once where others of its
// name worked until they ended ([monitor.Span.Park]). It neither blocks nor allocates.
func (p Permit) Park() bool { return p.span.Park() && p.permit.Park() }

// Span returns the task's execution, as the monitor sees it; the Permit ends it.
func (p Permit) Span() monitor.Span { return p.span }

func (p Permit) end() bool {
	ended := false
	switch p.ending {
	case answered:
		ended = p.permit.Release()
	case unserved:
		ended = p.permit.Abandon()
	case failed:
		ended = p.permit.Fail()
	}
	if !ended {
		return false
	}
	if p.task != nil {
		p.task.ended.Store(true)
	}
	return true
}

// Acquire waits for a slot and returns a permit and the task's context. Release the permit exactly once: defer p.Release(). The
// returned context derives from ctx, carries the task's priority and ID, and marks the slot as held until the release. A task of
// priority [decision.Normal] takes the priority of ctx, see [WithPriority], and a task without an ID takes that of ctx, see
// [WithRequestID].
//
// The error is a [*Rejection]; a [*decision.ReentryError], immediately, if ctx already belongs to work that holds a slot of w
// and so could wait for itself forever; or an [*InvalidError] if ctx is nil, or w is nil or zero. On error, the returned
// context is ctx. Acquire blocks as [limiter.Limiter.Acquire] does and allocates the context, 48 bytes. If a sample is overdue,
// Acquire takes it first, which costs a few microseconds and some ten allocations, more with compartments, and waits for
// Config.Pools, 20 ms at most.
func (w *Warden) Acquire(ctx context.Context, t Task) (context.Context, Permit, error) {
	if ctx == nil {
		return nil, Permit{}, invalidField("ctx", "nil", "a context")
	}
	if err := w.sampleIfOverdue(); err != nil {
		return ctx, Permit{}, err
	}
	if w.Holds(ctx) {
		w.reentries.Add(1)
		return ctx, Permit{}, &decision.ReentryError{Limiter: w.name}
	}
	if t.Priority == decision.Normal {
		t.Priority = PriorityFrom(ctx)
	}
	if t.ID == "" {
		t.ID = requestid.From(ctx)
	}
	at, strangers, bounded := timelimit.Moving(ctx)
	if bounded = bounded && (t.Deadline.IsZero() || at.Before(t.Deadline)); bounded {
		t.Deadline = at
	}
	p, err := w.limiter.Acquire(ctx, t)
	if err != nil {
		if bounded && strangers {
			timelimit.Blameless(ctx, err)
		}
		return ctx, Permit{}, err
	}
	m := &taskContext{Context: ctx, warden: w, id: t.ID, priority: t.Priority}
	return m, Permit{permit: p, span: w.recorder.Start(t.Name), task: m}, nil
}

// TryAcquire is Acquire for a task that may not wait. It has no context, so the task keeps its own priority, and reentry is
// not detected.
func (w *Warden) TryAcquire(t Task) (Permit, error) {
	if err := w.sampleIfOverdue(); err != nil {
		return Permit{}, err
	}
	p, err := w.limiter.TryAcquire(t)
	if err != nil {
		return Permit{}, err
	}
	return Permit{permit: p, span: w.recorder.Start(t.Name)}, nil
}

// Do acquires a slot, runs fn with the context of [Warden.Acquire], and releases the slot when fn returns, panics or calls
// runtime.Goexit; a panic is not recovered. The error is fn's own; or that of Acquire, and fn was not called; or an
// [*InvalidError] if fn is nil. A task that ends with an error or a panic has failed ([Permit.Failed]), or is abandoned
// ([Permit.Abandon]) if it returns an error after ctx has ended. Do blocks and allocates as Acquire does.
//
// Goroutines that fn starts with its context share fn's slot while fn runs, and are denied a second one: work that needs a slot
// of its own meanwhile needs a context that does not derive from fn's.
func Do[T any](ctx context.Context, w *Warden, t Task, fn func(context.Context) (T, error)) (T, error) {
	var zero T
	if fn == nil {
		return zero, invalidField("fn", "nil", "a function")
	}
	ctx, p, err := w.Acquire(ctx, t)
	if err != nil {
		return zero, err
	}
	defer p.Failed().Release() // unless it is released by then
	out, err := fn(ctx)
	switch {
	case err == nil:
		p.Release()
	case ctx.Err() != nil:
		p.Abandon()
	}
	return out, err
}

// SampleIfDue takes a sample if one is overdue, as Acquire does first. Call it for requests that follow this warden's decisions
// without acquiring its slots: those in compartments that receive its decisions (Config.ApplyTo).
func (w *Warden) SampleIfDue() { _ = w.sampleIfOverdue() }

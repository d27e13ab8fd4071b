// SPDX-License-Identifier: Apache-2.0

// The observer: it receives every event and can change nothing.

package bulkhead

import (
	"context"
	"fmt"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/nilcheck"
	"github.com/stopbank/stopbank/warden/internal/requestid"
)

// Observer receives every event. Observe is called synchronously after the fact, without holding a lock, so it may use the
// set. It must be safe for concurrent use. A panic in Observe is recovered and counted in [Snapshot].ObserverPanics. Events
// are for observation only: do not feed them back into control.
type Observer interface {
	Observe(Event)
}

// Observers combines several observers: each receives every event, in order, even if one before it panics. They allocate
// nothing themselves. No element may be nil: [New] returns an error.
type Observers []Observer

// Observe calls every observer. If several panic, the last panic propagates.
func (o Observers) Observe(e Event) {
	if len(o) == 0 {
		return
	}
	defer o[1:].Observe(e)
	o[0].Observe(e)
}

// checkObserver returns an error that names field, and the index of an element of Observers, if o is a nil pointer or function,
// or has an element that is nil.
func checkObserver(field string, o Observer) *decision.InvalidError {
	if typed := nilcheck.Optional(o); typed != "" {
		return invalidField(field, typed, "nil (no observer) or an observer")
	}
	all, _ := o.(Observers)
	for i, one := range all {
		element := fmt.Sprintf("%s[%d]", field, i)
		if one == nil {
			return invalidField(element, "nil", "an observer")
		}
		if err := checkObserver(element, one); err != nil {
			return err
		}
	}
	return nil
}

// Kind is the kind of an [Event]: a code in snake_case.
type Kind string

// The kinds. Each call of Do or Acquire with valid arguments in a compartment of the set produces exactly one Answered: when
// its caller is answered, or its permit released. A fallback adds one Degraded or FallbackFailed.
const (
	Answered  Kind = "answered"  // a caller got its answer: Outcome, Err, Reason
	Abandoned Kind = "abandoned" // a caller got its answer while its function still runs and holds its slot
	// an abandoned function has returned: Err, Took; after a panic Err has the value, and Stack is set
	Returned       Kind = "returned"
	Degraded       Kind = "degraded"        // a fallback gave the answer
	FallbackFailed Kind = "fallback_failed" // a fallback failed, or too many were running
	Resized        Kind = "resized"         // Resize has put Revision in force
	Applied        Kind = "applied"         // Apply has put Decision in force, or it went stale
	Proposed       Kind = "proposed"        // a plan is proposed: Proposal, and Revision, from which it was made
	ModeChanged    Kind = "mode_changed"    // a plan changed the Mode of Compartment, or New set one other than Enforce
)

// The outcomes of a call: what its caller got, before any fallback. Two more are decision.OutcomeCanceled, if the caller canceled
// while the function ran, and decision.Rejected, if the function was not called.
const (
	Succeeded decision.Outcome = "succeeded"
	Failed    decision.Outcome = "failed"          // the function returned an error
	TimedOut  decision.Outcome = "timeout_running" // the function ran longer than Timeout
	Panicked  decision.Outcome = "panicked"        // the function panicked or called runtime.Goexit
)

// answers are the outcomes of functions that were called, the most frequent first.
//
//nolint:gochecknoglobals // nobody writes it
var answers = [...]decision.Outcome{Succeeded, Failed, TimedOut, decision.OutcomeCanceled, Panicked}

// endedEarly reports whether the function would have run for longer, if its context had not ended.
func endedEarly(o decision.Outcome) bool { return o == TimedOut || o == decision.OutcomeCanceled }

// Event is one thing that happened. Fields that its Kind does not use are zero.
type Event struct {
	// Explanation has what a limiter's events have: Limiter is the compartment's name and Task.Priority its criticality, Task.Name
	// the tenant's key, of unbounded cardinality (do not use it as a metric label), and Task.ID the request ID of the caller's
	// context, possibly chosen by a client. Of an answer it has Outcome, Waited and WouldReject, or all of the rejection; of a
	// ModeChanged the Mode; of an Applied the Decision.
	decision.Explanation

	Kind     Kind
	Err      error         // what the caller got, or the function returned
	Took     time.Duration // from the start of the function until now
	Stack    []byte        // of a panic that could reach no caller
	Revision uint64
	By       string    // of a Resized: Plan.By
	Proposal *Proposal // shared: do not modify it
}

// observe calls the observer, if any, and recovers its panic.
func (s *Set) observe(e Event) {
	if s.observer == nil {
		return
	}
	defer s.contain()
	e.At = time.Now()
	s.observer.Observe(e)
}

// errOf returns the context's error. A context whose Err panics counts as canceled.
func (s *Set) errOf(ctx context.Context) (err error) {
	defer s.contain()
	err = context.Canceled //nolint:wastedassign // it stays if Err panics
	return ctx.Err()
}

// requestOf returns the request ID of ctx, "" if ctx panics.
func (s *Set) requestOf(ctx context.Context) string {
	defer s.contain()
	return requestid.From(ctx)
}

// contain recovers a panic of foreign code that would otherwise lose a slot. It is deferred around every such call.
func (s *Set) contain() {
	if recover() != nil { //nolint:revive // it is deferred itself
		s.mu.Lock()
		s.panics++
		s.mu.Unlock()
	}
}

// observeRejection passes the rejection of a call to the observer.
func (c *Compartment) observeRejection(ctx context.Context, err error) {
	if c.pool.set.observer == nil {
		return
	}
	e := Event{Kind: Answered, Err: err}
	e.Outcome, e.Reason = decision.Rejected, decision.Reentry
	if r, ok := err.(*decision.Rejection); ok { //nolint:errorlint // this call's own
		e.Explanation = r.Explanation
		e.Outcome = decision.Rejected // a canceled call as well: its function was not called
	}
	c.observe(ctx, e)
}

// observe passes an event of a call with ctx to the observer.
func (c *Compartment) observe(ctx context.Context, e Event) {
	if p := c.pool; p.set.observer != nil {
		e.Limiter, e.Task = p.config.Name, c.task(ctx)
		p.set.observe(e)
	}
}

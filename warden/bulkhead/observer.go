// The observer: it receives every event and can change nothing.

package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/requestid"
)

// Observer receives every event. Observe is called synchronously after the fact, without holding a lock, so it may use the
// set. It must be safe for concurrent use. A panic in Observe is recovered and counted in [Snapshot].ObserverPanics. Events
// are for observation only: do not feed them back into control.
type Observer interface {
	Observe(Event)
}

// Observers combines several observers: each receives every event, in order, even if one before it panics. They allocate
// nothing themselves. No element may be nil.
type Observers []Observer

// Observe calls every observer. If several panic, the last panic propagates.
func (o Observers) Observe(e Event) {
	if len(o) == 0 {
		return
	}
	defer o[1:].Observe(e)
	o[0].Observe(e)
}

// Kind is the kind of an [Event].
type Kind uint8

// The kinds. Each call of Do, and each permit, produces exactly one Answered; a fallback adds one Degraded or FallbackFailed.
const (
	Answered       Kind = iota + 1 // a caller got its answer: Outcome, Err, Reason
	Abandoned                      // a caller got its answer while its function still runs and holds its slot
	Returned                       // an abandoned function has returned: Err, Took; after a panic Err has the value, and Stack is set
	Degraded                       // a fallback gave the answer
	FallbackFailed                 // a fallback failed, or too many were running
	Resized                        // Resize has put Revision in force
	Applied                        // Apply has put Decision in force, or it went stale
	Proposed                       // a plan is proposed: Proposal, and Revision, from which it was made
	ModeChanged                    // a plan changed the Mode of Compartment, or New set one other than Enforce
)

// String returns the kind's code, such as "answered".
func (k Kind) String() string {
	return nameOf("Kind", uint8(k), "none", "answered", "abandoned", "returned", "degraded", "fallback_failed", "resized", "applied", "proposed", "mode_changed")
}

// Outcome classifies the answer that a caller got, before any fallback.
type Outcome uint8

// The outcomes.
const (
	Succeeded Outcome = iota + 1
	Failed            // the function returned an error
	TimedOut          // the function ran longer than Timeout; prints as "timeout_running", like its error
	Canceled          // the caller canceled while the function ran
	Panicked          // the function panicked or called runtime.Goexit
	Rejected          // the function was not called: Reason says why
)

// cut reports whether the function would have run for longer, if its context had not ended.
func (o Outcome) cut() bool { return o == TimedOut || o == Canceled }

// String returns the outcome's code: "succeeded", "failed", "timeout_running", "canceled", "panicked" or "rejected".
func (o Outcome) String() string {
	return nameOf("Outcome", uint8(o), "none", "succeeded", "failed", "timeout_running", "canceled", "panicked", "rejected")
}

// Event is one thing that happened. Fields that its Kind does not use are zero.
type Event struct {
	Kind        Kind
	At          time.Time
	Compartment string
	Criticality decision.Priority // the compartment's
	Tenant      string            // the tenant's key, of unbounded cardinality: do not use it as a metric label
	RequestID   string            // from the caller's context, possibly chosen by a client: see warden.WithRequestID
	Outcome     Outcome
	Reason      decision.RejectionReason // of a rejection
	WouldReject decision.RejectionReason // of an answer other than Rejected: why Enforce would have rejected the call, in a dry run
	Mode        decision.Mode            // of a ModeChanged
	Err         error                    // what the caller, or the function, returned
	Waited      time.Duration            // in the queue
	Took        time.Duration            // from the start of the function until now
	Stack       []byte                   // of a panic that could reach no caller
	Revision    uint64
	By          string                    // of a Resized: Plan.By
	Decision    *decision.ControlDecision // shared: do not modify it
	Proposal    *Proposal                 // shared: do not modify it
}

func nameOf(kind string, v uint8, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, v)
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
	e := Event{Kind: Answered, Outcome: Rejected, Reason: reasonFor(err), Err: err}
	var r *decision.Rejection
	var timeout *TimeoutError
	if errors.As(err, &timeout) {
		r = timeout.Rejection
	}
	if r != nil || errors.As(err, &r) {
		e.Waited = r.Waited
	}
	c.observe(ctx, e)
}

// observe passes an event of a call with ctx to the observer.
func (c *Compartment) observe(ctx context.Context, e Event) {
	if p := c.pool; p.set.observer != nil {
		e.Compartment, e.Criticality, e.Tenant, e.RequestID = p.config.Name, p.config.Criticality, c.key, p.set.requestOf(ctx)
		p.set.observe(e)
	}
}

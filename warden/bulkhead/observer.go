// Telling an observer what happened, without letting it change anything.

package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/requestid"
	"github.com/stopbank/stopbank/warden/limiter"
)

// Observer is told what happens. Observe is called synchronously, after the fact, holding no lock; it may use the set. It
// is called by many goroutines at once. A panic in it is contained and counted in [Snapshot].ObserverPanics. Events are
// for observation only: nothing of them may find its way back to control.
type Observer interface {
	Observe(Event)
}

// Observers are several observers as one: each is told every event, in order, also if one before it panics. They allocate
// nothing of their own. None of them may be nil.
type Observers []Observer

// Observe tells all of them. Of their panics it passes on the last.
func (o Observers) Observe(e Event) {
	if len(o) == 0 {
		return
	}
	defer o[1:].Observe(e)
	o[0].Observe(e)
}

// Kind says what an [Event] tells.
type Kind uint8

// The kinds. Each call of Do, and each permit, gives exactly one Answered; a fallback adds one Degraded or FallbackFailed.
const (
	Answered       Kind = iota + 1 // a caller got its answer: Outcome, Err, Reason
	Abandoned                      // a caller got its answer while its function still runs and holds its place
	Returned                       // an abandoned function has returned: Err, Took; if it panicked, Err says with what, and Stack
	Degraded                       // a fallback has answered instead
	FallbackFailed                 // a fallback has failed, or too many ran
	Resized                        // Resize has put Revision in force
	Applied                        // Apply has put Decision in force, or it went stale
	ModeChanged                    // a plan has put Compartment into Mode, or New another one than Enforce
)

// String is the kind's code, such as "answered".
func (k Kind) String() string {
	return nameOf("Kind", uint8(k), "none", "answered", "abandoned", "returned", "degraded", "fallback_failed", "resized", "applied", "mode_changed")
}

// Outcome says what a caller was answered, before any fallback.
type Outcome uint8

// The outcomes.
const (
	Succeeded Outcome = iota + 1
	Failed            // the function returned an error
	TimedOut          // the function ran longer than Timeout; prints as "timeout_running", as its error is called everywhere
	Canceled          // the caller went away while the function ran
	Panicked          // the function panicked or called runtime.Goexit
	Refused           // the function was not called: Reason says why
)

// String is the outcome's code: "succeeded", "failed", "timeout_running", "canceled", "panicked" or "rejected".
func (o Outcome) String() string {
	return nameOf("Outcome", uint8(o), "none", "succeeded", "failed", "timeout_running", "canceled", "panicked", "rejected")
}

// Event is one thing that happened. Fields that its Kind does not mention are zero.
type Event struct {
	Kind        Kind
	At          time.Time
	Compartment string
	Criticality limiter.Priority // the compartment's
	Tenant      string           // of a tenant: its key, which may be anything; do not make it a label
	RequestID   string           // of the caller's context: see warden.WithRequestID; a client may have made it up
	Outcome     Outcome
	Reason      limiter.Reason // of a refusal
	WouldReject limiter.Reason // of an answer, other than Refused: for which reason a dry run would have refused the call
	Mode        limiter.Mode   // of a ModeChanged
	Err         error          // what the caller, or the function, returned
	Waited      time.Duration  // in the queue
	Took        time.Duration  // from the start of the function until now
	Stack       []byte         // of a panic that no caller could be told
	Revision    uint64
	Decision    *decision.ControlDecision // shared: read it, do not write to it
}

func nameOf(kind string, v uint8, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, v)
}

// observe calls the observer, if there is one, and contains its panic.
func (s *Set) observe(e Event) {
	if s.observer == nil {
		return
	}
	defer s.contain()
	e.At = time.Now()
	s.observer.Observe(e)
}

// errOf is the context's error. One that panics has ended.
func (s *Set) errOf(ctx context.Context) (err error) {
	defer s.contain()
	err = context.Canceled //nolint:wastedassign // it stays if Err panics
	return ctx.Err()
}

// requestOf is the id of the request that ctx is of. A context that panics is of none.
func (s *Set) requestOf(ctx context.Context) string {
	defer s.contain()
	return requestid.From(ctx)
}

// contain is deferred around every call of foreign code for which a place could be lost.
func (s *Set) contain() {
	if recover() != nil { //nolint:revive // it is deferred itself
		s.mu.Lock()
		s.panics++
		s.mu.Unlock()
	}
}

// observeRefusal tells the observer that a call was refused.
func (c *Compartment) observeRefusal(ctx context.Context, err error) {
	if c.part.set.observer == nil {
		return
	}
	e := Event{Kind: Answered, Outcome: Refused, Reason: reasonFor(err), Err: err}
	var r *limiter.Rejection
	var timeout *TimeoutError
	if errors.As(err, &timeout) {
		r = timeout.Rejection
	}
	if r != nil || errors.As(err, &r) {
		e.Waited = r.Waited
	}
	c.observe(ctx, e)
}

// observe tells the observer an event of a call with ctx.
func (c *Compartment) observe(ctx context.Context, e Event) {
	if p := c.part; p.set.observer != nil {
		e.Compartment, e.Criticality, e.Tenant, e.RequestID = p.config.Name, p.config.Criticality, c.key, p.set.requestOf(ctx)
		p.set.observe(e)
	}
}

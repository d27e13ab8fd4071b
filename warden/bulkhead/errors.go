// The errors of a call in a compartment.

package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

var (
	// ErrUnknownCompartment matches every [*UnknownCompartmentError] with errors.Is.
	ErrUnknownCompartment = errors.New("bulkhead: unknown compartment")
	// ErrTimeout matches every [*TimeoutError] with errors.Is.
	ErrTimeout = errors.New("bulkhead: timeout")
	// ErrReentry matches every [*ReentryError] with errors.Is.
	ErrReentry = decision.ErrReentry
	// ErrBreakerOpen matches every [*BreakerOpenError] with errors.Is.
	ErrBreakerOpen = errors.New("bulkhead: circuit breaker open")
	// ErrConflict means that a plan was made from an outdated revision, and changed nothing: start again from [Set.Plan]. The
	// text of an error that matches it names both revisions.
	ErrConflict = errors.New("bulkhead: the plan's revision is outdated")
)

// Phase is the stage in which a call timed out.
type Phase uint8

// The phases.
const (
	Queued  Phase = iota + 1 // waiting for a slot; the function was not called
	Running                  // the function still runs, or returned too late
)

// String returns "queued" or "running".
func (p Phase) String() string {
	switch p {
	case Queued:
		return "queued"
	case Running:
		return "running"
	}
	return fmt.Sprintf("Phase(%d)", uint8(p))
}

// TimeoutError reports that MaxWait or Timeout has passed. errors.Is(err, context.DeadlineExceeded) holds as well.
type TimeoutError struct {
	Compartment string
	Phase       Phase
	// After is the bound that was exceeded: MaxWait or Timeout.
	After time.Duration
	// Rejection explains the wait in phase Queued, with DeadlineFrom max_wait or timeout; nil in phase Running.
	Rejection *decision.Rejection
	// RequestID is the request ID of the caller's context, "" if it has none: see warden.WithRequestID.
	RequestID string
}

// Error names the compartment, the phase and the bound.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("bulkhead: %q: timeout after %s (%s)", e.Compartment, e.After, e.Phase)
}

// Reason returns the code "timeout_queued" or "timeout_running", as used in metrics, logs, the console and answers to
// clients.
func (e *TimeoutError) Reason() string {
	if e.Phase == Queued {
		return string(TimeoutQueued)
	}
	return TimedOut.String()
}

// Is reports whether target is ErrTimeout.
func (e *TimeoutError) Is(target error) bool { return target == ErrTimeout }

// Timeout returns true, as for a net.Error.
func (e *TimeoutError) Timeout() bool { return true }

// Unwrap returns context.DeadlineExceeded.
func (e *TimeoutError) Unwrap() error { return context.DeadlineExceeded }

// UnknownCompartmentError reports that the set has no compartment of this name. [Snapshot].Unknown counts such calls.
type UnknownCompartmentError struct {
	Compartment string // "" for a nil Compartment, which is not counted
	set         *Set   // nil: unknown
}

// Error names the compartment and those of the set, at most ten.
func (e *UnknownCompartmentError) Error() string {
	if e.set == nil && e.Compartment == "" {
		return "bulkhead: the compartment is nil; allowed: one from Set.Compartment"
	}
	text := fmt.Sprintf("bulkhead: unknown compartment %q", e.Compartment)
	if e.set == nil {
		return text
	}
	known := make([]string, len(e.set.pools))
	for i, p := range e.set.pools {
		known[i] = strconv.Quote(p.config.Name)
	}
	if more := len(known) - mostNamed; more > 0 {
		known = append(known[:mostNamed], fmt.Sprintf("%d more", more))
	}
	return text + "; the set has " + strings.Join(known, ", ")
}

const mostNamed = 10

// Is reports whether target is ErrUnknownCompartment.
func (e *UnknownCompartmentError) Is(target error) bool { return target == ErrUnknownCompartment }

// PanicError is the panic value that reaches the caller when a function with a Timeout panics: the original value, with the
// stack of the goroutine that panicked.
type PanicError struct {
	Value any
	Stack []byte
}

// Error returns the value and the stack. It allocates.
func (e *PanicError) Error() string { return fmt.Sprintf("%v\n\n%s", e.Value, e.Stack) }

// Unwrap returns the value if it is an error, else nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ReentryError rejects a call from work that already holds a slot of the same compartment: decision.ReentryError, which
// wardens return too.
type ReentryError = decision.ReentryError

// BreakerOpenError reports that the circuit breaker rejected the call. The function was not called.
type BreakerOpenError struct {
	Compartment string
	// Err is the breaker's own error.
	Err error
	// RequestID is the request ID of the caller's context, "" if it has none: see warden.WithRequestID.
	RequestID string
}

// Error names the compartment and the breaker's error.
func (e *BreakerOpenError) Error() string {
	return fmt.Sprintf("bulkhead: %q: breaker: %v", e.Compartment, e.Err)
}

// Is reports whether target is ErrBreakerOpen.
func (e *BreakerOpenError) Is(target error) bool { return target == ErrBreakerOpen }

// Unwrap returns the breaker's error.
func (e *BreakerOpenError) Unwrap() error { return e.Err }

// conflictError is ErrConflict with both revisions.
type conflictError struct{ given, current uint64 }

// Error names both revisions.
func (e *conflictError) Error() string {
	return fmt.Sprintf("bulkhead: the plan has revision %d, but the set has revision %d; read Set.Plan again", e.given, e.current)
}

// Is reports whether target is ErrConflict.
func (e *conflictError) Is(target error) bool { return target == ErrConflict }

// invalidField rejects a field of a Config, or an argument: the field as in Config.Limit.
func invalidField(field string, value any, allowed string) *decision.InvalidError {
	return &decision.InvalidError{Field: "bulkhead." + field, Value: value, Allowed: allowed}
}

// IsExcluded reports whether err says nothing about the health of the dependency: the call was rejected or timed out before
// its function started, in this or an inner compartment, or its caller canceled it. Use it as Settings.IsExcluded of
// gobreaker, so that an unused half-open probe does not count. For nil it returns false: success is a result.
func IsExcluded(err error) bool {
	var timeout *TimeoutError
	if errors.As(err, &timeout) {
		return timeout.Phase == Queued
	}
	return errors.Is(err, decision.ErrRejected) || errors.Is(err, ErrBreakerOpen) || errors.Is(err, ErrReentry) ||
		errors.Is(err, ErrUnknownCompartment) || errors.Is(err, context.Canceled)
}

func notMade() error {
	return invalidField("Compartment", "zero", "a compartment of a set made by New")
}

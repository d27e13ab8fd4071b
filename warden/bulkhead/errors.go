// What a caller may be told instead of an answer.

package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
)

var (
	// ErrUnknownCompartment is what every *UnknownCompartmentError is.
	ErrUnknownCompartment = errors.New("bulkhead: unknown compartment")
	// ErrTimeout is what every *TimeoutError is.
	ErrTimeout = errors.New("bulkhead: timeout")
	// ErrReentry is what every *ReentryError is.
	ErrReentry = limiter.ErrReentry
	// ErrBreakerOpen is what every *BreakerOpenError is.
	ErrBreakerOpen = errors.New("bulkhead: circuit breaker open")
	// ErrStale is what every *StaleError is.
	ErrStale = errors.New("bulkhead: stale revision")
	// ErrInvalid is what every *InvalidError is.
	ErrInvalid = errors.New("bulkhead: invalid argument")
)

// Phase says where a call was when its time was up.
type Phase uint8

// The phases.
const (
	Queued  Phase = iota + 1 // it waited for a place; the function was not called
	Running                  // the function runs, or has returned too late
)

// String is "queued" or "running".
func (p Phase) String() string {
	switch p {
	case Queued:
		return "queued"
	case Running:
		return "running"
	}
	return fmt.Sprintf("Phase(%d)", uint8(p))
}

// TimeoutError says that MaxWait or Timeout has passed. errors.Is(err, context.DeadlineExceeded) holds as well.
type TimeoutError struct {
	Compartment string
	Phase       Phase
	// After is the bound that was passed: MaxWait or Timeout.
	After time.Duration
	// Rejection explains the wait, in phase Queued; else nil. Its DeadlineFrom is max_wait or timeout.
	Rejection *limiter.Rejection
	// RequestID is that of the caller's context, "" if it is of no request: see warden.WithRequestID.
	RequestID string
}

// Error names compartment, phase and bound.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("bulkhead: %q: timeout after %s (%s)", e.Compartment, e.After, e.Phase)
}

// Reason is "timeout_queued" or "timeout_running": the name of the event in metrics, logs, the console and answers to clients.
func (e *TimeoutError) Reason() string {
	if e.Phase == Queued {
		return limiter.TimeoutQueued.String()
	}
	return TimedOut.String()
}

// Is reports whether target is ErrTimeout.
func (e *TimeoutError) Is(target error) bool { return target == ErrTimeout }

// Unwrap is context.DeadlineExceeded.
func (e *TimeoutError) Unwrap() error { return context.DeadlineExceeded }

// UnknownCompartmentError says that the set has no compartment of this name. The call was counted in [Snapshot].Unknown.
type UnknownCompartmentError struct {
	Compartment string // "" of a nil Compartment, which nobody counts
}

// Error names the compartment.
func (e *UnknownCompartmentError) Error() string {
	return fmt.Sprintf("bulkhead: unknown compartment %q", e.Compartment)
}

// Is reports whether target is ErrUnknownCompartment.
func (e *UnknownCompartmentError) Is(target error) bool { return target == ErrUnknownCompartment }

// PanicError is what a panic of a function with a Timeout becomes on its caller's goroutine: the value, and the stack of
// the goroutine on which it happened.
type PanicError struct {
	Value any
	Stack []byte
}

// Error has the value and the stack. It allocates.
func (e *PanicError) Error() string { return fmt.Sprintf("%v\n\n%s", e.Value, e.Stack) }

// Unwrap is the value, if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ReentryError says that a compartment was entered by what it runs itself: limiter.ReentryError, which wardens return too.
type ReentryError = limiter.ReentryError

// BreakerOpenError says that the circuit breaker let nothing pass. The function was not called.
type BreakerOpenError struct {
	Compartment string
	// Err is what the breaker said.
	Err error
	// RequestID is that of the caller's context, "" if it is of no request: see warden.WithRequestID.
	RequestID string
}

// Error names the compartment and what the breaker said.
func (e *BreakerOpenError) Error() string {
	return fmt.Sprintf("bulkhead: %q: breaker: %v", e.Compartment, e.Err)
}

// Is reports whether target is ErrBreakerOpen.
func (e *BreakerOpenError) Is(target error) bool { return target == ErrBreakerOpen }

// Unwrap is what the breaker said.
func (e *BreakerOpenError) Unwrap() error { return e.Err }

// StaleError says that a plan was made from a revision that is not the present one.
type StaleError struct{ Given, Current uint64 }

// Error names both revisions.
func (e *StaleError) Error() string {
	return fmt.Sprintf("bulkhead: the plan is of revision %d, the present one is %d", e.Given, e.Current)
}

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// InvalidError says which field or argument was wrong, what it was, and what is allowed. Nothing has changed.
type InvalidError struct {
	Field   string // such as "Config.Compartments[1].Max"
	Value   any
	Allowed string
}

// Error names field, value and what is allowed.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("bulkhead: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// NoVerdict is whether err says nothing about the dependency that a function uses: it was refused or timed out before it
// started, by this or by an inner compartment, or its caller went away. It is meant for Settings.IsExcluded of gobreaker,
// so that a half-open probe that was not used does not count. nil is a verdict.
func NoVerdict(err error) bool {
	var timeout *TimeoutError
	if errors.As(err, &timeout) {
		return timeout.Phase == Queued
	}
	return errors.Is(err, limiter.ErrRejected) || errors.Is(err, ErrBreakerOpen) || errors.Is(err, ErrReentry) ||
		errors.Is(err, ErrUnknownCompartment) || errors.Is(err, context.Canceled)
}

func notMade() error { return &InvalidError{"Compartment", "of no set", "one of a set made by New"} }

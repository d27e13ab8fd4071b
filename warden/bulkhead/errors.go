// SPDX-License-Identifier: Apache-2.0

// The errors of a call in a compartment.

package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

var (
	// ErrUnknownCompartment matches the error of a call in a compartment that the set does not have. Its text names the
	// compartment and those of the set, at most ten. [Snapshot].Unknown counts such calls.
	ErrUnknownCompartment = errors.New("bulkhead: unknown compartment")
	// ErrTimeout matches every [*TimeoutError] with errors.Is.
	ErrTimeout = errors.New("bulkhead: timeout")
	// ErrConflict means that a plan was made from an outdated revision, and changed nothing: start again from [Set.Plan]. The
	// text of an error that matches it names both revisions.
	ErrConflict = errors.New("bulkhead: the plan's revision is outdated")
)

// TimeoutError reports that a call's Timeout has passed while its function ran, and the function may still run. As the Cause of a
// [*decision.Rejection] with reason TimeoutQueued it reports that MaxWait, or Timeout, has passed while the call waited. It
// matches ErrTimeout and context.DeadlineExceeded with errors.Is.
type TimeoutError struct {
	Compartment string
	// After is the bound that was exceeded: MaxWait or Timeout.
	After time.Duration
	// RequestID is the request ID of the caller's context, "" if it has none: see warden.WithRequestID.
	RequestID string
}

// Error names the compartment and the bound.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("bulkhead: %q: timeout after %s", e.Compartment, e.After)
}

// Is reports whether target is ErrTimeout or context.DeadlineExceeded.
func (e *TimeoutError) Is(target error) bool {
	return target == ErrTimeout || target == context.DeadlineExceeded
}

// Timeout returns true, as for a net.Error: os.IsTimeout finds it in the error of an http.Client.
func (e *TimeoutError) Timeout() bool { return true }

// unknownCompartmentError is ErrUnknownCompartment with names.
type unknownCompartmentError struct {
	compartment string // "" for a nil Compartment, which is not counted
	set         *Set   // nil: unknown
}

// Error names the compartment and those of the set, at most ten.
func (e *unknownCompartmentError) Error() string {
	if e.set == nil && e.compartment == "" {
		return "bulkhead: the compartment is nil; allowed: one from Set.Compartment"
	}
	text := fmt.Sprintf("bulkhead: unknown compartment %q", e.compartment)
	if e.set == nil {
		return text
	}
	known := make([]string, len(e.set.pools))
	for i, p := range e.set.pools {
		known[i] = strconv.Quote(p.config.Name)
	}
	const most = 10
	if more := len(known) - most; more > 0 {
		known = append(known[:most], fmt.Sprintf("%d more", more))
	}
	return text + "; the set has " + strings.Join(known, ", ")
}

// Is reports whether target is ErrUnknownCompartment.
func (e *unknownCompartmentError) Is(target error) bool { return target == ErrUnknownCompartment }

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

// IsExcluded reports whether err says nothing about the health of the dependency: the call was rejected before its function
// started, in this or an inner compartment, or its caller canceled it, as a gRPC status may say too. Use it as Settings.IsExcluded of
// gobreaker, so that an unused half-open probe does not count. For nil it returns false: success is a result.
func IsExcluded(err error) bool {
	return errors.Is(err, decision.ErrRejected) || errors.Is(err, decision.ErrReentry) ||
		errors.Is(err, ErrUnknownCompartment) || errors.Is(err, context.Canceled) || canceledCall(err)
}

// canceledCall reports whether err has the status Canceled of gRPC, whose errors match no context.Canceled, and whose types this module
// does not know: a method GRPCStatus, whose result has a method Code.
func canceledCall(err error) bool {
	switch of := err.(type) { //nolint:errorlint // the tree is walked here
	case nil:
		return false
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(of.Unwrap(), canceledCall)
	}
	if code, is := callCode(err); is {
		const canceled = 1
		return code == canceled
	}
	return canceledCall(errors.Unwrap(err))
}

// callCode returns the code of an error with a status of gRPC. The methods' names are constants, or the linker would keep all methods.
func callCode(err error) (code uint64, is bool) {
	defer func() { _ = recover() }() // a nil pointer, or another type with such methods
	status := reflect.ValueOf(err).MethodByName("GRPCStatus")
	if !status.IsValid() {
		return 0, false
	}
	return status.Call(nil)[0].MethodByName("Code").Call(nil)[0].Uint(), true
}

func errNotMade() error {
	return invalidField("Compartment", "zero", "a compartment of a set made by New")
}

// SPDX-License-Identifier: Apache-2.0

// Rejections and invalid arguments: a sentinel for each, and a type with the data.

package admission

import (
	"errors"
	"fmt"
)

var (
	// ErrRejected is the family of all rejections: errors.Is(err, ErrRejected) holds for every *RejectedError.
	ErrRejected = errors.New("admission: rejected")
	// ErrInvalid is the family of all invalid arguments: errors.Is(err, ErrInvalid) holds for every *InvalidError.
	ErrInvalid = errors.New("admission: invalid argument")
)

// Reason is why an operation was rejected.
type Reason uint8

const (
	// Saturated: at one instant during the call, Limit operations were in flight.
	Saturated Reason = iota
	// Closed: the gate was closed before or during the call.
	Closed
	reasons
)

// String returns "saturated" or "closed".
func (r Reason) String() string {
	if r < reasons {
		return [reasons]string{"saturated", "closed"}[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// RejectedError explains a rejection. All rejections of one gate for one reason share a value, so that rejecting
// allocates nothing: callers must not write to it.
type RejectedError struct {
	Gate   string // Config.Name
	Reason Reason
	Limit  int // Config.Limit
}

// Error returns a text with gate, reason and limit.
func (e *RejectedError) Error() string {
	return fmt.Sprintf("admission: gate %q rejected: %v (limit %d)", e.Gate, e.Reason, e.Limit)
}

// Is reports whether target is ErrRejected.
func (e *RejectedError) Is(target error) bool { return target == ErrRejected }

// InvalidError names a field or argument, its value, and the allowed values.
type InvalidError struct {
	Field   string
	Value   any
	Allowed string
}

// Error returns a text with field, value and allowed values.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("admission: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

func nilFunc(name string) error {
	return &InvalidError{Field: name, Value: "nil", Allowed: "a function"}
}

func nilGate() error {
	return &InvalidError{Field: "gate", Value: "nil", Allowed: "a gate made by New"}
}

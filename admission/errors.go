// Refusals and invalid arguments: a sentinel for each, and a struct that explains.

package admission

import (
	"errors"
	"fmt"
)

var (
	// ErrRejected is what every refused admission is: errors.Is(err, ErrRejected).
	ErrRejected = errors.New("admission: rejected")
	// ErrInvalid is what every *InvalidError is.
	ErrInvalid = errors.New("admission: invalid argument")
)

// Reason says why an admission was refused.
type Reason uint8

const (
	// Saturated: at one instant during the call, Limit admissions were in flight.
	Saturated Reason = iota
	// Closed: the gate was closed before or during the call.
	Closed
	reasons
)

// String is "saturated" or "closed".
func (r Reason) String() string {
	switch r {
	case Saturated:
		return "saturated"
	case Closed:
		return "closed"
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// RejectedError explains a refusal. All refusals of one gate for one reason share a value, so that refusing allocates
// nothing: read it, do not write to it.
type RejectedError struct {
	Gate   string // Config.Name
	Reason Reason
	Limit  int // Config.Limit
}

// Error names gate, reason and limit.
func (e *RejectedError) Error() string {
	return fmt.Sprintf("admission: gate %q rejected: %v (limit %d)", e.Gate, e.Reason, e.Limit)
}

// Is reports whether target is ErrRejected.
func (e *RejectedError) Is(target error) bool { return target == ErrRejected }

// InvalidError says which field or argument was wrong, what it was, and what is allowed.
type InvalidError struct {
	Field   string
	Value   any
	Allowed string
}

// Error names field, value and what is allowed.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("admission: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

func nilFunc(name string) error {
	return &InvalidError{Field: name, Value: "nil", Allowed: "a function"}
}

func nilGate() error {
	return &InvalidError{Field: "g", Value: "nil", Allowed: "a gate"}
}

// What is wrong with an argument.

package limiter

import (
	"errors"
	"fmt"
)

var (
	// ErrRejected is what every *Rejection is.
	ErrRejected = errors.New("limiter: rejected")
	// ErrInvalid is what every *InvalidError is.
	ErrInvalid = errors.New("limiter: invalid argument")
)

// InvalidError says which field or argument was wrong, what it was, and what is allowed. Nothing was submitted.
type InvalidError struct {
	Field   string
	Value   any
	Allowed string
}

// Error names field, value and what is allowed.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("limiter: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

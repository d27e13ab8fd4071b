// The error of an invalid argument.

package limiter

import (
	"errors"
	"fmt"
)

// ErrInvalid matches every [*InvalidError] with errors.Is.
var ErrInvalid = errors.New("limiter: invalid argument")

// InvalidError names an invalid field or argument, its value and the allowed values. The call had no effect.
type InvalidError struct {
	Field   string
	Value   any
	Allowed string
}

// Error names the field, its value and the allowed values.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("limiter: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

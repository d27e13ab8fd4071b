// The error of this package.

package monitor

import (
	"errors"
	"fmt"
)

// ErrInvalid matches every [*InvalidError] with errors.Is.
var ErrInvalid = errors.New("monitor: invalid argument")

// InvalidError names an invalid field, its value and the allowed values.
type InvalidError struct {
	Field   string
	Value   any
	Allowed string
}

// Error names the field, its value and the allowed values.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("monitor: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

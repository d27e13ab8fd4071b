// The error of an invalid decision.

package decision

import (
	"errors"
	"fmt"
)

// ErrInvalid matches every [*InvalidError] with errors.Is.
var ErrInvalid = errors.New("decision: invalid")

// InvalidError names a field of a decision that is out of range, its value and the allowed values.
type InvalidError struct {
	Field   string // such as "Stale.TargetConcurrency"
	Value   any
	Allowed string
}

// Error names the field, its value and the allowed values.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("decision: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

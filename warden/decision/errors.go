// What is wrong with a decision.

package decision

import (
	"errors"
	"fmt"
)

// ErrInvalid is what every *InvalidError is.
var ErrInvalid = errors.New("decision: invalid")

// InvalidError says which field of a decision is out of its range, what it is, and what is allowed.
type InvalidError struct {
	Field   string // such as "Stale.TargetConcurrency"
	Value   any
	Allowed string
}

// Error names field, value and what is allowed.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("decision: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

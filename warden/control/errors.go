// Every error of this package: one sentinel, one struct that explains.

package control

import (
	"errors"
	"fmt"
)

// ErrInvalid is what every *InvalidError is: errors.Is(err, ErrInvalid).
var ErrInvalid = errors.New("control: invalid argument")

// InvalidError says which field was wrong, what it was, and what is allowed.
type InvalidError struct {
	Field   string
	Value   any
	Allowed string
}

// Error names field, value and what is allowed.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("control: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

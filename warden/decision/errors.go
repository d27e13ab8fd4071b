// The error for bad input, of every package of this module and of its adapters.

package decision

import (
	"errors"
	"fmt"
)

// ErrInvalid matches every [*InvalidError] with errors.Is.
var ErrInvalid = errors.New("warden: invalid argument")

// InvalidError rejects bad input: a field of a configuration, or an argument. The call that returned it had no effect. Every
// package of this module returns this type, and so do the adapters beside it.
type InvalidError struct {
	Field   string // with its package: "limiter.Config.MaxQueue"; without one it is of package warden
	Value   any    // what it was
	Allowed string // what it may be, in words
}

// Error names the field, its value and the allowed values.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("warden: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

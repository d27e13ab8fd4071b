// What is wrong with a call: an argument, or where it comes from.

package limiter

import (
	"errors"
	"fmt"
	"log/slog"
)

var (
	// ErrRejected is what every *Rejection is.
	ErrRejected = errors.New("limiter: rejected")
	// ErrInvalid is what every *InvalidError is.
	ErrInvalid = errors.New("limiter: invalid argument")
	// ErrReentry is what every *ReentryError is.
	ErrReentry = errors.New("limiter: reentry")
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

// ReentryError says that a place was asked for by work that holds one already, of the same warden or compartment, and so could
// wait for itself for ever. It is said by those who mark contexts: package warden and package bulkhead. A Limiter alone
// knows no contexts but to wait for their end, and lets such a task wait.
type ReentryError struct {
	Limiter string // its name, or the compartment's
}

// Error names the limiter.
func (e *ReentryError) Error() string {
	return fmt.Sprintf("limiter: %q is entered from inside itself", e.Limiter)
}

// Is reports whether target is ErrReentry.
func (e *ReentryError) Is(target error) bool { return target == ErrReentry }

// LogValue has the error as a group: limiter and reason, which is "reentry". It allocates.
func (e *ReentryError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("limiter", e.Limiter), slog.String("reason", Reentry.String()))
}

// Errors of a call itself: an invalid argument, or a reentrant call.

package limiter

import (
	"errors"
	"fmt"
	"log/slog"
)

var (
	// ErrRejected matches every [*Rejection] with errors.Is.
	ErrRejected = errors.New("limiter: rejected")
	// ErrInvalid matches every [*InvalidError] with errors.Is.
	ErrInvalid = errors.New("limiter: invalid argument")
	// ErrReentry matches every [*ReentryError] with errors.Is.
	ErrReentry = errors.New("limiter: reentry")
)

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

// ReentryError rejects a second slot for work that already holds one in the same warden or compartment, because it could wait
// for itself forever. Package warden and package bulkhead return it. A Limiter alone cannot detect reentry and lets such a
// task wait.
type ReentryError struct {
	Limiter string // name of the limiter or compartment
}

// Error names the limiter, and says what to do.
func (e *ReentryError) Error() string {
	return fmt.Sprintf("reentry: the caller already holds a slot of %q and would wait for itself; call the function directly, or use another limiter or compartment for it", e.Limiter)
}

// Is reports whether target is ErrReentry.
func (e *ReentryError) Is(target error) bool { return target == ErrReentry }

// LogValue returns the error as a group: limiter, and reason "reentry". It allocates.
func (e *ReentryError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("limiter", e.Limiter), slog.String("reason", Reentry.String()))
}

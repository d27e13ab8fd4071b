// Errors of a call itself: an invalid argument, or a reentrant call.

package limiter

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/stopbank/stopbank/warden/decision"
)

var (
	// ErrRejected matches every [*Rejection] with errors.Is.
	ErrRejected = errors.New("limiter: rejected")

	// ErrReentry matches every [*ReentryError] with errors.Is.
	ErrReentry = errors.New("limiter: reentry")
)

// invalidField rejects a field of a Config, or an argument: the field as in Config.Limit.
func invalidField(field string, value any, allowed string) *decision.InvalidError {
	return &decision.InvalidError{Field: "limiter." + field, Value: value, Allowed: allowed}
}

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

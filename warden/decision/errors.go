// SPDX-License-Identifier: Apache-2.0

// The errors of bad input, for every package of this module and its adapters, and of a reentrant task.

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

// ErrReentry matches every [*ReentryError] with errors.Is.
var ErrReentry = errors.New("limiter: reentry")

// ReentryError rejects a second slot for work that already holds one in the same place, because it could wait for itself
// forever. Whoever marks the context of work with a slot returns it; a limiter alone cannot detect reentry and lets such a task
// wait.
type ReentryError struct {
	Limiter string // name of the limiter or compartment
}

// Error names the limiter, and says what to do.
func (e *ReentryError) Error() string {
	return fmt.Sprintf("reentry: the caller already holds a slot of %q and would wait for itself; "+
		"call the function directly, or use another limiter or compartment for it", e.Limiter)
}

// Is reports whether target is ErrReentry.
func (e *ReentryError) Is(target error) bool { return target == ErrReentry }

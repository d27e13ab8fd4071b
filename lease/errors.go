package lease

// This file holds the errors: every rejection is a type with the fields that explain it, and has a sentinel for callers to
// branch on.
// With every error of this package the ledger is as it was before the call.

import (
	"errors"
	"fmt"
)

var (
	// ErrBacklogOrdering marks a *BacklogOrderingError.
	ErrBacklogOrdering = errors.New("lease: out of order")
	// ErrTokenMismatch marks a *TokenMismatchError.
	ErrTokenMismatch = errors.New("lease: token mismatch")
	// ErrLeaseNotFound marks a *LeaseNotFoundError.
	ErrLeaseNotFound = errors.New("lease: no lease")
	// ErrBacklogFull marks a *BacklogFullError.
	ErrBacklogFull = errors.New("lease: backlog full")
	// ErrFloor marks a *FloorError.
	ErrFloor = errors.New("lease: floor goes down")
	// ErrInvalid marks an *InvalidError.
	ErrInvalid = errors.New("lease: invalid value")
)

// BacklogOrderingError rejects a TryAcquire that would overtake the backlog: the domain is idle and another offset is at
// the head. The cause is a bug of the caller, or the arrival race that Offer exists for.
type BacklogOrderingError struct {
	Domain   string
	Expected int64 // the backlog's head
	Got      int64 // the offset asked for
}

func (e *BacklogOrderingError) Error() string {
	return fmt.Sprintf("lease: domain %q: offset %d requested, but %d is at the head of the backlog", e.Domain, e.Got, e.Expected)
}

// Unwrap returns ErrBacklogOrdering.
func (e *BacklogOrderingError) Unwrap() error { return ErrBacklogOrdering }

// TokenMismatchError rejects a Succeed, Fail, Reclaim or Release whose token is not the current lease's, and a Succeed
// or Fail of a lease that was released. It does not contain the current token, so that a caller that has lost the lease
// cannot take it back from the error.
type TokenMismatchError struct {
	Domain string
	Offset int64 // the offset under lease now
	Got    Token // the token shown
}

func (e *TokenMismatchError) Error() string {
	return fmt.Sprintf("lease: domain %q: token %d does not hold the lease on offset %d", e.Domain, e.Got, e.Offset)
}

// Unwrap returns ErrTokenMismatch.
func (e *TokenMismatchError) Unwrap() error { return ErrTokenMismatch }

// LeaseNotFoundError rejects a Succeed, Fail, Reclaim or Release in a domain without a lease. If Outcome is not
// OutcomeUnknown, the token is the one that completed this domain last: an earlier call took effect and its reply was
// lost. The ledger remembers that until the next lease in the domain, or a Compact above the offset.
type LeaseNotFoundError struct {
	Domain  string
	Got     Token // the token shown
	Outcome Outcome
	Offset  int64 // the offset that Got completed; 0 for OutcomeUnknown
}

func (e *LeaseNotFoundError) Error() string {
	if e.Outcome == OutcomeUnknown {
		return fmt.Sprintf("lease: domain %q: no lease for token %d", e.Domain, e.Got)
	}
	return fmt.Sprintf("lease: domain %q: token %d completed offset %d before (%s)", e.Domain, e.Got, e.Offset, e.Outcome)
}

// Unwrap returns ErrLeaseNotFound.
func (e *LeaseNotFoundError) Unwrap() error { return ErrLeaseNotFound }

// BacklogFullError rejects an offset that the domain has not seen, because MaxBacklog offsets wait already.
type BacklogFullError struct {
	Domain     string
	Offset     int64 // the rejected offset
	MaxBacklog int
}

func (e *BacklogFullError) Error() string {
	return fmt.Sprintf("lease: domain %q: no room for offset %d: %d wait already", e.Domain, e.Offset, e.MaxBacklog)
}

// Unwrap returns ErrBacklogFull.
func (e *BacklogFullError) Unwrap() error { return ErrBacklogFull }

// FloorError rejects a Compact that would lower the floor.
type FloorError struct {
	Floor int64 // the ledger's floor
	Got   int64 // the floor asked for
}

func (e *FloorError) Error() string {
	return fmt.Sprintf("lease: floor %d is below the ledger's floor %d", e.Got, e.Floor)
}

// Unwrap returns ErrFloor.
func (e *FloorError) Unwrap() error { return ErrFloor }

// InvalidError rejects a Config field or an argument.
type InvalidError struct {
	Field   string // as in Config.MaxRetries; or the parameter's name
	Value   any
	Allowed string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("lease: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Unwrap returns ErrInvalid.
func (e *InvalidError) Unwrap() error { return ErrInvalid }

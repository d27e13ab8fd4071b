// SPDX-License-Identifier: Apache-2.0

// The errors: every rejection is a type with the fields that explain it, and errors.Is finds the sentinel of its kind. With
// every error of this package the ledger is as it was before the call.

package lease

import (
	"errors"
	"fmt"

	"github.com/stopbank/stopbank/lease/internal/step"
)

// ErrBacklogOrdering is what errors.Is finds in a *BacklogOrderingError.
var ErrBacklogOrdering = errors.New("lease: out of order")

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

// Is makes errors.Is find ErrBacklogOrdering.
func (e *BacklogOrderingError) Is(target error) bool { return target == ErrBacklogOrdering }

// ErrTokenMismatch is what errors.Is finds in a *TokenMismatchError.
var ErrTokenMismatch = errors.New("lease: token mismatch")

// TokenMismatchError rejects a Succeed, Fail, GiveUp, Reclaim or Release whose token is not the current lease's or whose
// partition another process has, and a Succeed, Fail or GiveUp of a lease that was released. It does not contain the current
// token, so that a caller that has lost the lease cannot take it back from the error.
type TokenMismatchError struct {
	Domain string
	Offset int64 // the offset under lease now; 0 if another process has the partition
	Got    Token // the token shown
}

func (e *TokenMismatchError) Error() string {
	return fmt.Sprintf("lease: domain %q: token %d does not hold the lease on offset %d", e.Domain, e.Got, e.Offset)
}

// Is makes errors.Is find ErrTokenMismatch.
func (e *TokenMismatchError) Is(target error) bool { return target == ErrTokenMismatch }

// ErrLeaseNotFound is what errors.Is finds in a *LeaseNotFoundError.
var ErrLeaseNotFound = errors.New("lease: no lease")

// LeaseNotFoundError rejects a Succeed, Fail, GiveUp, Reclaim or Release in a domain without a lease. If Status is set, the token
// is the one that completed this domain last: an earlier call took effect and its reply was lost. The ledger remembers
// that until the next lease in the domain, or a Compact above the offset; one per window (package durable), or of leasekafka in
// memory, only while it has the same owner.
type LeaseNotFoundError struct {
	Domain string
	Got    Token  // the token shown
	Status Status // what the offset that Got completed is now: AlreadyProcessed or AlreadyFailed; 0: Got is not known
	Offset int64  // the offset that Got completed; 0 without a Status
}

func (e *LeaseNotFoundError) Error() string {
	if e.Status == 0 {
		return fmt.Sprintf("lease: domain %q: no lease for token %d", e.Domain, e.Got)
	}
	return fmt.Sprintf("lease: domain %q: token %d completed offset %d before (%s)", e.Domain, e.Got, e.Offset, e.Status)
}

// Is makes errors.Is find ErrLeaseNotFound.
func (e *LeaseNotFoundError) Is(target error) bool { return target == ErrLeaseNotFound }

// ErrBacklogFull is what errors.Is finds in a *BacklogFullError.
var ErrBacklogFull = errors.New("lease: backlog full")

// BacklogFullError rejects an offset that the domain has not seen, because MaxBacklog offsets wait already.
type BacklogFullError struct {
	Domain     string
	Offset     int64 // the rejected offset
	MaxBacklog int
}

func (e *BacklogFullError) Error() string {
	return fmt.Sprintf("lease: domain %q: no room for offset %d: %d wait already", e.Domain, e.Offset, e.MaxBacklog)
}

// Is makes errors.Is find ErrBacklogFull.
func (e *BacklogFullError) Is(target error) bool { return target == ErrBacklogFull }

// ErrFloor rejects a Compact that would lower the floor; the text has both floors.
var ErrFloor = step.ErrFloor

// ErrInvalid is what errors.Is finds in an *InvalidError.
var ErrInvalid = errors.New("lease: invalid value")

// InvalidError rejects a Config field or an argument.
type InvalidError struct {
	Field   string // as in Config.MaxRetries; or the parameter's name
	Value   any
	Allowed string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("lease: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

package durable

// This file holds the errors that an engine adds to those of package lease.

import (
	"errors"
	"fmt"

	"github.com/stopbank/stopbank/lease"
)

var (
	// ErrStore marks a *StoreError.
	ErrStore = errors.New("durable: store failed")
	// ErrAmbiguous marks an *AmbiguousError.
	ErrAmbiguous = errors.New("durable: outcome unknown")
	// ErrContention marks a *ContentionError.
	ErrContention = errors.New("durable: too many conflicts")
)

// StoreError says that the Store could not be read or written. The ledger is unchanged and the call may be repeated.
// errors.Is finds the Store's error, and ctx's if that was the cause.
type StoreError struct {
	Call string // "Load", "Swap" or "List"
	Name string // the domain, "" for the ledger's own record and for List
	Err  error
}

func (e *StoreError) Error() string {
	return fmt.Sprintf("durable: %s of %q: %v", e.Call, e.Name, e.Err)
}

// Unwrap returns ErrStore and the Store's error.
func (e *StoreError) Unwrap() []error { return []error{ErrStore, e.Err} }

// AmbiguousError says that a write was sent and it is unknown whether it was, or will be, applied. It is the only error
// after which the ledger may have changed. Repeating the call is safe: a write that was applied shows (ALREADY_ACQUIRED
// with the lease, a *LeaseNotFoundError with its outcome, ENQUEUED), and one that was not is applied. Two exceptions: a
// repeated Fail may count one retry twice, and a repeated Reclaim may find its own new token in place of the old one, as
// a *TokenMismatchError; Held shows it.
type AmbiguousError struct {
	Domain string
	Cause  error // of the last attempt. errors.Is does not find it: ctx's error alone would mean that nothing changed
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("durable: domain %q: the write may or may not have been applied: %v", e.Domain, e.Cause)
}

// Unwrap returns ErrAmbiguous.
func (e *AmbiguousError) Unwrap() error { return ErrAmbiguous }

// ContentionError says that other writers of the domain were faster at every try. The ledger is unchanged by this call.
type ContentionError struct {
	Domain string
	Tries  int
}

func (e *ContentionError) Error() string {
	return fmt.Sprintf("durable: domain %q: %d tries in a row conflicted with other writers", e.Domain, e.Tries)
}

// Unwrap returns ErrContention.
func (e *ContentionError) Unwrap() error { return ErrContention }

// CorruptError says that a record is not one that a Ledger wrote under this name. It is neither overwritten nor replaced
// by a guess: every call on the domain returns this error until the record is repaired.
type CorruptError struct {
	Domain  string // "": the ledger's own record
	Version uint64 // the Store's version of the record
	Err     error  // the defect
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("durable: record of %q, version %d: %v", e.Domain, e.Version, e.Err)
}

// Unwrap returns the defect.
func (e *CorruptError) Unwrap() error { return e.Err }

// NewerError says that a record has a format newer than this program. It is neither read nor overwritten.
type NewerError struct {
	Domain string // "": the ledger's own record
	Format int
	Known  int // the newest format that this program reads
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("durable: record of %q has format %d, this program knows up to %d", e.Domain, e.Format, e.Known)
}

// FullError rejects an offset that the domain has not seen, because with it the domain's record could outgrow the
// Store's limit before the backlog is finished. Calls on waiting offsets still succeed: finish them, or raise the floor.
// It is a lease.ErrBacklogFull as well.
type FullError struct {
	Domain string
	Offset int64 // the rejected offset
	Size   int   // the record's with it, in bytes
	Limit  int   // the Store's, in bytes; an arrival may use some bytes less than half of it
}

func (e *FullError) Error() string {
	return fmt.Sprintf("durable: domain %q: no room for offset %d: a record of %d bytes is more than half of %d", e.Domain, e.Offset, e.Size, e.Limit)
}

// Unwrap returns lease.ErrBacklogFull.
func (e *FullError) Unwrap() error { return lease.ErrBacklogFull }

// ExhaustedError says that a ledger has used up its "writers" (4,194,303 in the life of a ledger) or its "tokens"
// (2,199,023,255,551 in a row). The ledger is unchanged.
type ExhaustedError struct{ Kind string }

func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("durable: the ledger has used up its %s", e.Kind)
}

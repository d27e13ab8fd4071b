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

// StoreError says that the Store could not be read or would not write. The ledger is unchanged and the call may be made again. errors.Is
// sees the Store's error, and ctx's where that was it.
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

// AmbiguousError says that a write was sent and nobody can tell whether it was, or will be, carried out. It is the one error after which
// the ledger may have changed. Calling again is safe: what was carried out shows (ALREADY_ACQUIRED with the lease, a *LeaseNotFoundError
// with its outcome, ENQUEUED), what was not is carried out. Only a Fail may count one retry twice, and a Reclaim may
// find its own new token in place of the old one, as a *TokenMismatchError: Held shows it.
type AmbiguousError struct {
	Domain string
	Cause  error // of the last attempt. errors.Is does not see it: ctx's error by itself would say that nothing changed
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("durable: domain %q: not known whether the write was carried out: %v", e.Domain, e.Cause)
}

// Unwrap returns ErrAmbiguous.
func (e *AmbiguousError) Unwrap() error { return ErrAmbiguous }

// ContentionError says that other writers of the domain were faster every time. The ledger is unchanged by this call.
type ContentionError struct {
	Domain string
	Tries  int
}

func (e *ContentionError) Error() string {
	return fmt.Sprintf("durable: domain %q: %d tries met another writer each", e.Domain, e.Tries)
}

// Unwrap returns ErrContention.
func (e *ContentionError) Unwrap() error { return ErrContention }

// CorruptError says that a record is not what a Ledger wrote under this name. Nothing is overwritten and nothing is
// assumed in its place: every call on the domain says so until the record is repaired.
type CorruptError struct {
	Domain  string // "": the ledger's own record
	Version uint64 // the Store's version of the record
	Err     error  // what is wrong with it
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("durable: record of %q, version %d: %v", e.Domain, e.Version, e.Err)
}

// Unwrap returns what is wrong.
func (e *CorruptError) Unwrap() error { return e.Err }

// NewerError says that a record was written in a format that came after this program. It is not read and not overwritten.
type NewerError struct {
	Domain string // "": the ledger's own record
	Format int
	Known  int // the newest format that this program reads
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("durable: record of %q has format %d, this program knows up to %d", e.Domain, e.Format, e.Known)
}

// FullError refuses an offset that the domain has not seen, because with it the domain's record could outgrow what the Store takes before all that
// waits has been worked off. Those calls go on: work off what waits, or raise the floor. It is a lease.ErrBacklogFull as well.
type FullError struct {
	Domain string
	Offset int64 // the offset refused
	Size   int   // the record's with it, in bytes
	Limit  int   // the Store's, in bytes; an arrival may use some bytes less than half of it
}

func (e *FullError) Error() string {
	return fmt.Sprintf("durable: domain %q: no room for offset %d: a record of %d bytes is more than half of %d", e.Domain, e.Offset, e.Size, e.Limit)
}

// Unwrap returns lease.ErrBacklogFull.
func (e *FullError) Unwrap() error { return lease.ErrBacklogFull }

// ExhaustedError says that a ledger has no unused number left of a kind: "writers" (4,194,303 in the life of a ledger) or
// "tokens" (2,199,023,255,551 in a row). The ledger is unchanged.
type ExhaustedError struct{ Kind string }

func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("durable: the ledger has used up its %s", e.Kind)
}

package dispatch

// This file holds the errors: of New, of Run, and of attempts besides the handler's own.

import (
	"errors"
	"fmt"
	"time"

	"github.com/stopbank/stopbank/lease"
)

var (
	// ErrDrain marks a *DrainError.
	ErrDrain = errors.New("dispatch: drain incomplete")
	// ErrLost marks a *LostError.
	ErrLost = errors.New("dispatch: partition lost")
	// ErrPermanent, wrapped in a handler's error, gives the record up at once: another attempt would fail too.
	ErrPermanent = errors.New("dispatch: permanent failure")
	// ErrGoexit is the failure of a handler that called runtime.Goexit.
	ErrGoexit = errors.New("dispatch: handler called runtime.Goexit")
	// ErrDied is the failure of a record whose process died during the last attempt.
	ErrDied = errors.New("dispatch: the last attempt ended with its process")
	// ErrRecordGone is the failure of a record that the ledger has and the Source has lost. It is retried and given up
	// like any other.
	ErrRecordGone = errors.New("dispatch: the source has lost the record")

	errNothing = errors.New("dispatch: Fetch returned neither records nor an error")
)

// invalidField rejects a field of a Config, or an argument: the field as in Config.Limit.
func invalidField(field string, value any, allowed string) *lease.InvalidError {
	return &lease.InvalidError{Field: "dispatch." + field, Value: value, Allowed: allowed}
}

func allowed[T any](zero, most T) string {
	return fmt.Sprintf("above 0 to %v, or 0 (the default, %v)", most, zero)
}

// PanicError is the failure of a handler that panicked.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("dispatch: panic: %v", e.Value) }

// Unwrap returns Value if it is an error, and nil otherwise.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Later is a handler's error to be called again after wait, or after Backoff if wait is 0 or less. It is not a failure
// and not counted as an attempt; the record keeps its domain waiting. A new owner of the partition does not know of the
// wait, and calls the handler at once.
func Later(wait time.Duration) error { return &later{wait} }

type later struct{ wait time.Duration }

func (e *later) Error() string { return "dispatch: retry after " + e.wait.String() }

// BatchError rejects all records of a Fetch: Offset is not above the offset before it, or for the first record is below
// From. The event is FetchFailed, and the records are fetched again: dropping the one out of order would lose it.
type BatchError struct {
	From   int64 // the argument of Fetch
	After  int64 // the offset before, From-1 for the first record
	Offset int64
}

func (e *BatchError) Error() string {
	return fmt.Sprintf("dispatch: Fetch from %d returned offset %d after %d; allowed: from %d on, rising", e.From, e.Offset, e.After, e.From)
}

// ordered rejects records that begin below from or do not rise.
func ordered(from int64, records []Record) error {
	for i, r := range records {
		if i == 0 && r.Offset < from {
			return &BatchError{From: from, After: from - 1, Offset: r.Offset}
		}
		if i > 0 && r.Offset <= records[i-1].Offset {
			return &BatchError{From: from, After: records[i-1].Offset, Offset: r.Offset}
		}
	}
	return nil
}

// DrainError says what a drain left unfinished. Nothing is lost: the next owner of the partition does it.
type DrainError struct {
	Name string
	// Abandoned counts the records whose handler was still running, or whose outcome could not be written to the ledger.
	// Their leases are released.
	Abandoned int
	// Commit is why the floor was not committed, nil if it was.
	Commit error
}

func (e *DrainError) Error() string {
	return fmt.Sprintf("dispatch: %s drained with %d abandoned, commit: %v", e.Name, e.Abandoned, e.Commit)
}

// Unwrap returns ErrDrain and Commit.
func (e *DrainError) Unwrap() []error {
	if e.Commit == nil {
		return []error{ErrDrain}
	}
	return []error{ErrDrain, e.Commit}
}

// LostError says that the partition belongs to another member of the group, or to none. A Source returns it; an
// Ownership ends the context of a partition with it as the cause; a Run that meets it ends with it. Unfinished records
// are left to the next owner.
type LostError struct {
	Partition string
	Err       error // the reason; may be nil
}

func (e *LostError) Error() string {
	return fmt.Sprintf("dispatch: partition %s lost: %v", e.Partition, e.Err)
}

// Unwrap returns ErrLost and Err.
func (e *LostError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrLost}
	}
	return []error{ErrLost, e.Err}
}

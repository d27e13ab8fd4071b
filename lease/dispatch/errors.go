package dispatch

// This file holds the errors: what New refuses, how Run ends, and what a handler can fail with besides its own.

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrInvalid marks an *InvalidError.
	ErrInvalid = errors.New("dispatch: invalid value")
	// ErrDrain marks a *DrainError.
	ErrDrain = errors.New("dispatch: drain incomplete")
	// ErrLost marks a *LostError.
	ErrLost = errors.New("dispatch: partition lost")
	// ErrPermanent, somewhere in a handler's error, gives the record up at once: no other attempt would end better.
	ErrPermanent = errors.New("dispatch: permanent failure")
	// ErrGoexit is the failure of a handler that called runtime.Goexit.
	ErrGoexit = errors.New("dispatch: handler called runtime.Goexit")
	// ErrDied is the failure of a record whose last attempt ended with its process.
	ErrDied = errors.New("dispatch: the last attempt ended with its process")
	// ErrRecordGone is the failure of a record that the ledger has and the Source has lost. It is tried and given up like
	// any other.
	ErrRecordGone = errors.New("dispatch: the source has lost the record")

	errNothing = errors.New("dispatch: Fetch returned neither records nor an error")
)

// InvalidError refuses a Config field or an argument.
type InvalidError struct {
	Field   string
	Value   any
	Allowed string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("dispatch: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Unwrap returns ErrInvalid.
func (e *InvalidError) Unwrap() error { return ErrInvalid }

func allowed[T any](zero, most T) string { return fmt.Sprintf("0 (%v) or 1 to %v", zero, most) }

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

// Later is a handler's answer that it is too early: it is called again after wait, or after Backoff if wait is not above 0. This is no failure
// and counts as no attempt; the record keeps its domain waiting. Who takes the partition over before that does not know of
// it, and calls the handler at once.
func Later(wait time.Duration) error { return &later{wait} }

type later struct{ wait time.Duration }

func (e *later) Error() string { return "dispatch: not before " + e.wait.String() }

// BatchError refuses what a Fetch returned, all of it: Offset is not above the offset before it, or for the first one
// is below From. It is told with FetchFailed, and the records are asked for again: to drop the one out of order would be to lose it.
type BatchError struct {
	From   int64 // where Fetch was told to begin
	After  int64 // the offset before, From-1 for the first record
	Offset int64
}

func (e *BatchError) Error() string {
	return fmt.Sprintf("dispatch: Fetch from %d returned offset %d after %d; allowed: from %d on, rising", e.From, e.Offset, e.After, e.From)
}

// ordered refuses records that begin below from or do not rise.
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

// DrainError says what a drain left undone. Nothing is lost: who takes the partition next does it.
type DrainError struct {
	Name string
	// Abandoned counts the records whose handler was still running, or whose outcome could not be written down. Their leases
	// are given back.
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

// LostError says that the partition belongs to another member of the group, or to none. A Source returns it, and an Ownership ends
// the context of a partition with it as the cause; a Run that meets it ends with it. What was in work is left to the next owner.
type LostError struct {
	Partition string
	Err       error // what said so
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

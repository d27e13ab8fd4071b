package deadletter

// This file is what keeps letters, and what it refuses.

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// Store keeps the letters of any number of partitions. Its methods may be called by any number of goroutines and processes. Each blocks for
// the engine; an error of the engine leaves it open whether the call was carried out, and the call may be made again: what was done shows.
type Store interface {
	// Put keeps a letter. One that is there already, or was, stays as it is, and Put returns nil: a dispatcher tells of a letter at least once.
	Put(ctx context.Context, letter Letter) error
	// List returns the letters of a Filter in the order of their IDs, without Payload and Headers. What is put meanwhile may be missing. After
	// an error comes nothing. Other methods may be called while it runs.
	List(ctx context.Context, filter Filter) iter.Seq2[Letter, error]
	// Get returns a letter with all that it has. Error: *NotDeadError.
	Get(ctx context.Context, id ID) (Letter, error)
	// Park keeps a letter out of ReplayAll until Unpark. A later note replaces the earlier one. Both may be repeated. Error: *NotDeadError.
	Park(ctx context.Context, id ID, note string) error
	Unpark(ctx context.Context, id ID) error
	// Replay appends Letter.Replay to the source of the partition, and then the letter is gone. One that is parked is replayed as well. When
	// it fails the letter is there still, or the record has been appended; how often it may be appended by a Replay
	// that failed and was repeated is for the engine to say. Error: *NotDeadError, and then nothing was appended.
	Replay(ctx context.Context, id ID) error
	// Discard drops a letter for good. Error: *NotDeadError.
	Discard(ctx context.Context, id ID) error
}

// Filter says which letters are meant. The zero value means all.
type Filter struct {
	Partition string // "": all
	Domain    string // "": all
	Limit     int    // at most so many; 0: no bound. Not negative
}

// Matches reports whether the filter means a letter, but for the Limit.
func (f Filter) Matches(l Letter) bool {
	return (f.Partition == "" || f.Partition == l.Partition) && (f.Domain == "" || f.Domain == l.Record.Domain)
}

// Check refuses a negative Limit. Error: *InvalidError.
func (f Filter) Check() error {
	if f.Limit < 0 {
		return &InvalidError{Field: "Filter.Limit", Value: f.Limit, Allowed: "0 (no bound) or more"}
	}
	return nil
}

// Fate is what became of a letter that is not there.
type Fate string

// The fates of letters. Unknown: the store has never had it.
const (
	Unknown   Fate = "unknown"
	Replayed  Fate = "replayed"
	Discarded Fate = "discarded"
)

var (
	// ErrNotDead marks a *NotDeadError.
	ErrNotDead = errors.New("deadletter: no such letter")
	// ErrInvalid marks an *InvalidError.
	ErrInvalid = errors.New("deadletter: invalid value")
)

// NotDeadError says that there is no such letter, and what became of it.
type NotDeadError struct {
	ID   ID
	Fate Fate
}

func (e *NotDeadError) Error() string {
	return fmt.Sprintf("deadletter: no letter %q: %s", e.ID.String(), e.Fate)
}

// Unwrap returns ErrNotDead.
func (e *NotDeadError) Unwrap() error { return ErrNotDead }

// InvalidError refuses an argument.
type InvalidError struct {
	Field   string
	Value   any
	Allowed string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("deadletter: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Unwrap returns ErrInvalid.
func (e *InvalidError) Unwrap() error { return ErrInvalid }

// CorruptError says that what a store holds is no letter that this version can read.
type CorruptError struct {
	Reason string
}

func (e *CorruptError) Error() string { return "deadletter: not a letter: " + e.Reason }

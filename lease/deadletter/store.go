package deadletter

// This file is the interface of a store of letters, and its errors.

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/stopbank/stopbank/lease"
)

// Store keeps the letters of any number of partitions. It is safe for concurrent use by any number of goroutines and
// processes. Each method blocks for the engine. After an error of the engine the call may have taken effect; it may be
// repeated.
type Store interface {
	// Put keeps a letter. For a letter that exists or existed it changes nothing and returns nil: a dispatcher reports a
	// letter at least once.
	Put(ctx context.Context, letter Letter) error
	// List returns the letters of a Filter in the order of their IDs, without Payload and Headers. Letters put meanwhile
	// may be missing. An error ends the iteration. Other methods may be called during it.
	List(ctx context.Context, filter Filter) iter.Seq2[Letter, error]
	// Get returns a letter with Payload and Headers. Error: *NotDeadError.
	Get(ctx context.Context, id ID) (Letter, error)
	// Park makes ReplayAll skip a letter, until Unpark. A later note replaces the earlier one. Both may be repeated.
	// Error: *NotDeadError.
	Park(ctx context.Context, id ID, note string) error
	Unpark(ctx context.Context, id ID) error
	// Replay appends Letter.Replay to the source of the partition, and then removes the letter, parked or not. After an
	// error the letter still exists, or the record has been appended; the engine says how often a Replay that failed and
	// was repeated may append it. Error: *NotDeadError, and then nothing was appended.
	Replay(ctx context.Context, id ID) error
	// Discard removes a letter without a replay. Error: *NotDeadError.
	Discard(ctx context.Context, id ID) error
}

// Filter selects letters. The zero value selects all.
type Filter struct {
	Partition string // "": all
	Domain    string // "": all
	Limit     int    // the greatest number of letters; 0: no bound. Not negative
}

// Matches reports whether the filter selects a letter, apart from the Limit.
func (f Filter) Matches(l Letter) bool {
	return (f.Partition == "" || f.Partition == l.Partition) && (f.Domain == "" || f.Domain == l.Record.Domain)
}

// Check rejects a negative Limit. Error: *InvalidError.
func (f Filter) Check() error {
	if f.Limit < 0 {
		return invalidField("Filter.Limit", f.Limit, "0 (unlimited) or more")
	}
	return nil
}

// Fate is what happened to a letter that is gone.
type Fate string

// The fates of letters. Unknown: the store never had the letter.
const (
	Unknown   Fate = "unknown"
	Replayed  Fate = "replayed"
	Discarded Fate = "discarded"
)

var (
	// ErrNotDead marks a *NotDeadError.
	ErrNotDead = errors.New("deadletter: no such letter")
)

// NotDeadError says that there is no such letter, and why.
type NotDeadError struct {
	ID   ID
	Fate Fate
}

func (e *NotDeadError) Error() string {
	return fmt.Sprintf("deadletter: no letter %q: %s", e.ID.String(), e.Fate)
}

// Unwrap returns ErrNotDead.
func (e *NotDeadError) Unwrap() error { return ErrNotDead }

// invalidField rejects a field of a Config, or an argument: the field as in Config.Limit.
func invalidField(field string, value any, allowed string) *lease.InvalidError {
	return &lease.InvalidError{Field: "deadletter." + field, Value: value, Allowed: allowed}
}

// CorruptError says that stored bytes are not a letter that this version can read.
type CorruptError struct {
	Reason string
}

func (e *CorruptError) Error() string { return "deadletter: not a letter: " + e.Reason }

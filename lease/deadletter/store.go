// SPDX-License-Identifier: Apache-2.0

// The interface of a store of letters, and its errors.

package deadletter

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
	// may be missing. An error ends the iteration: *InvalidError for a negative Limit. Other methods may be called during it.
	List(ctx context.Context, filter Filter) iter.Seq2[Letter, error]
	// Get returns a letter with Payload and Headers. Error: *NotDeadError.
	Get(ctx context.Context, id ID) (Letter, error)
	// Park makes ReplayAll skip a letter, until Unpark. A later note replaces the earlier one. Both may be repeated.
	// Error: *NotDeadError.
	Park(ctx context.Context, id ID, note string) error
	Unpark(ctx context.Context, id ID) error
	// Replay appends the letter's record to the source of its partition, with the same key, payload and headers and the header
	// Stopbank-Replay-Of: ID, and then removes the letter, parked or not. After an
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
	// ErrCorrupt: what is stored is not a letter that this version can read.
	ErrCorrupt = errors.New("deadletter: not a letter")
)

// NotDeadError says that there is no such letter, and why.
type NotDeadError struct {
	ID   ID
	Fate Fate
}

func (e *NotDeadError) Error() string {
	return fmt.Sprintf("deadletter: no letter %q: %s", e.ID.String(), e.Fate)
}

// Is makes errors.Is find ErrNotDead.
func (e *NotDeadError) Is(target error) bool { return target == ErrNotDead }

// invalidField rejects a field of a Config, or an argument: the field as in Config.Limit.
func invalidField(field string, value any, allowed string) *lease.InvalidError {
	return &lease.InvalidError{Field: "deadletter." + field, Value: value, Allowed: allowed}
}

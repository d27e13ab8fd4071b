package deadletter

// This file replays many letters, those of a key in order.

import (
	"context"
	"errors"
	"fmt"
)

// Report counts what became of the letters that ReplayAll was to replay.
type Report struct {
	Replayed int
	Parked   int // left out
	Gone     int // somebody else was faster
	Failed   int // each the first of its key that did
	Behind   int // not tried, because one before it in its key failed
}

// ReplayAll replays the letters of a filter that are not parked, those of a key in the order of their offsets. A key stops at the first
// letter that cannot be replayed; the others go on. It takes those that are there when it begins: a record that is replayed and dies anew is a new letter,
// and not chased. It holds some hundred bytes for each of them. Errors: *InvalidError for a nil store; what List says; ctx's; or a *ReplayError when letters are left. It blocks
// for a Replay of each letter.
func ReplayAll(ctx context.Context, store Store, filter Filter) (Report, error) {
	var report Report
	if store == nil {
		return report, &InvalidError{Field: "store", Value: nil, Allowed: "a store"}
	}
	type key struct{ partition, domain string }
	type waiting struct {
		id ID
		of key
	}
	var all []waiting
	for letter, err := range store.List(ctx, filter) {
		if err != nil {
			return report, err
		}
		if letter.Parked {
			report.Parked++
			continue
		}
		all = append(all, waiting{letter.ID(), key{letter.Partition, letter.Record.Domain}})
	}
	stopped := map[key]bool{}
	var first error
	for _, w := range all {
		if stopped[w.of] {
			report.Behind++
			continue
		}
		if err := ctx.Err(); err != nil {
			return report, err
		}
		switch err := store.Replay(ctx, w.id); {
		case err == nil:
			report.Replayed++
		case errors.Is(err, ErrNotDead):
			report.Gone++
		default:
			stopped[w.of] = true
			report.Failed++
			if first == nil {
				first = &ReplayError{ID: w.id, Err: err}
			}
		}
	}
	return report, first
}

// ReplayError says which letter could not be replayed, of several the first.
type ReplayError struct {
	ID  ID
	Err error
}

func (e *ReplayError) Error() string {
	return fmt.Sprintf("deadletter: %q not replayed: %v", e.ID.String(), e.Err)
}

// Unwrap returns what the store said.
func (e *ReplayError) Unwrap() error { return e.Err }

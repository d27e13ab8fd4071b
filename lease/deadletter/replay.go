// SPDX-License-Identifier: Apache-2.0

// A replay of many letters, those of a key in order.

package deadletter

import (
	"context"
	"errors"
	"fmt"

	"github.com/stopbank/stopbank/lease/internal/nilcheck"
)

// Report counts the results of a ReplayAll.
type Report struct {
	Replayed int
	Parked   int // skipped
	Gone     int // replayed or discarded meanwhile by another caller
	Failed   int // at most one for each key: the key then stops
	Behind   int // not tried, because an earlier letter of the key failed
}

// ReplayAll replays the letters of a filter that are not parked, those of a key in the order of their offsets. A key
// stops at the first letter that cannot be replayed; the other keys go on. ReplayAll takes the letters that exist when
// it begins: a replayed record that is given up again is a new letter, and is not replayed by this call. It holds the ID
// and the key of each letter, and blocks for a Replay of each. Errors: *InvalidError for a nil store; List's error;
// ctx's; or, when letters are left, the error of the first Replay that failed, with the letter's ID in its text.
func ReplayAll(ctx context.Context, store Store, filter Filter) (Report, error) {
	var report Report
	if missing := nilcheck.Required(store); missing != "" {
		return report, invalidField("store", missing, "a store")
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
				first = fmt.Errorf("deadletter: %q not replayed: %w", w.id.String(), err)
			}
		}
	}
	return report, first
}

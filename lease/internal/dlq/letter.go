// SPDX-License-Identifier: Apache-2.0

// Package dlq is what the stores of dead letters share: which letters a filter selects, what a replay appends, and how a
// letter is written down.
package dlq

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// ReplayOf is the header of a replayed record with the letter's ID as text. A record that was replayed twice has the last one's.
const ReplayOf = "Stopbank-Replay-Of"

// Replay returns the record that a replay appends to the source: the letter's, with the header ReplayOf. Offset and Time are
// zero, because the source sets them.
func Replay(l deadletter.Letter) dispatch.Record {
	record := l.Record
	record.Offset, record.Time = 0, time.Time{}
	record.Headers = slices.DeleteFunc(slices.Clone(record.Headers), func(h dispatch.Header) bool { return h.Key == ReplayOf })
	record.Headers = append(record.Headers, dispatch.Header{Key: ReplayOf, Value: []byte(l.ID().String())})
	return record
}

// Check rejects a filter with a negative Limit. Error: *lease.InvalidError.
func Check(f deadletter.Filter) error {
	if f.Limit < 0 {
		return &lease.InvalidError{Field: "Filter.Limit", Value: f.Limit, Allowed: "0 (unlimited) or more"}
	}
	return nil
}

// Matches reports whether a filter selects a letter, apart from the Limit.
func Matches(f deadletter.Filter, l deadletter.Letter) bool {
	return (f.Partition == "" || f.Partition == l.Partition) && (f.Domain == "" || f.Domain == l.Record.Domain)
}

// Sorted returns the letters that match a filter as Store.List does: in order, without Payload and Headers, at most its Limit.
// It sorts the slice in place.
func Sorted(letters []*deadletter.Letter, filter deadletter.Filter) iter.Seq2[deadletter.Letter, error] {
	slices.SortFunc(letters, func(a, b *deadletter.Letter) int {
		return cmp.Or(strings.Compare(a.Partition, b.Partition), cmp.Compare(a.Record.Offset, b.Record.Offset))
	})
	return func(yield func(deadletter.Letter, error) bool) {
		n := 0
		for _, at := range letters {
			l := *at
			if !Matches(filter, l) {
				continue
			}
			if n++; filter.Limit > 0 && n > filter.Limit {
				return
			}
			l.Record.Payload, l.Record.Headers = nil, nil
			if !yield(l, nil) {
				return
			}
		}
	}
}

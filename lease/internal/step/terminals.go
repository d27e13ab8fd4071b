// SPDX-License-Identifier: Apache-2.0

// The offsets that are done: sorted and packed, eight bytes each.

package step

import (
	"math"
	"slices"
)

// offsets is a set, sorted upwards. Neighbours in one domain are rarely adjacent, because the offsets between them
// belong to other domains; so runs would not pay, and a plain sorted slice is both small and searched in
// O(log n). Completions mostly come in rising order, which makes add an append.
type offsets []int64

func (o offsets) has(offset int64) bool {
	_, ok := slices.BinarySearch(o, offset)
	return ok
}

// from counts the members at or above floor.
func (o offsets) from(floor int64) int {
	i, _ := slices.BinarySearch(o, floor)
	return len(o) - i
}

// add inserts an offset that is not in the set.
func (o offsets) add(offset int64) offsets {
	if len(o) == 0 || offset > o[len(o)-1] {
		return append(o, offset)
	}
	i, _ := slices.BinarySearch(o, offset)
	return slices.Insert(o, i, offset)
}

// trim drops the members below floor if they are an eighth or more: the others may have to move, and each one dropped
// pays for the move of seven at most. Most of the room goes too once seven eighths stand empty; a set that
// breathes between one floor and the next keeps its room. Few members move into small.
func (o offsets) trim(floor int64, small offsets) offsets {
	i, _ := slices.BinarySearch(o, floor)
	if i == 0 || i < len(o)/8 {
		return o
	}
	kept := o[i:]
	switch {
	case cap(o) <= scanMax || len(kept) > cap(o)/8:
		return o[:copy(o, kept)]
	case len(kept) > cap(small):
		return append(slices.Grow(small[:0:0], 2*len(kept)), kept...)
	}
	return append(small, kept...)
}

// terminals are the done offsets of a domain, other than the one that it completed last (see State). One cache line.
type terminals struct {
	// top is at or above every member. A new offset is mostly above it, and so known to be new without a look at the sets.
	top int64
	// compactAt is at or above the floor of the domain's entry in the compaction queue, if it has one.
	compactAt int64
	processed offsets
	failed    *offsets // nil until an offset is given up
	room      [2]int64 // first backing of processed, so that a small set is one object
}

func newTerminals() *terminals {
	t := &terminals{top: math.MinInt64}
	t.processed = t.room[:0]
	return t
}

// status is AlreadyProcessed, AlreadyFailed or 0.
func (t *terminals) status(offset int64) Status {
	switch {
	case offset > t.top:
		return 0
	case t.processed.has(offset):
		return AlreadyProcessed
	case t.failed != nil && t.failed.has(offset):
		return AlreadyFailed
	}
	return 0
}

// add notes how an offset that is not a member ended. A set that is full first drops what lies below floor, and
// grows if that is too little.
func (t *terminals) add(offset int64, end phase, floor int64) {
	t.top = max(t.top, offset)
	if end == processed {
		if len(t.processed) == cap(t.processed) {
			t.processed = t.processed.trim(floor, t.room[:0])
		}
		t.processed = t.processed.add(offset)
		return
	}
	if t.failed == nil {
		t.failed = new(offsets)
	}
	if len(*t.failed) == cap(*t.failed) {
		*t.failed = t.failed.trim(floor, nil)
	}
	*t.failed = t.failed.add(offset)
}

func (t *terminals) trim(floor int64) {
	t.processed = t.processed.trim(floor, t.room[:0])
	if t.failed != nil {
		if *t.failed = t.failed.trim(floor, nil); len(*t.failed) == 0 {
			t.failed = nil
		}
	}
}

// count counts the members at or above floor.
func (t *terminals) count(floor int64) (processed, failed int) {
	if t.failed != nil {
		failed = t.failed.from(floor)
	}
	return t.processed.from(floor), failed
}

func (t *terminals) len() int {
	if t.failed == nil {
		return len(t.processed)
	}
	return len(t.processed) + len(*t.failed)
}

// quantile is the lesser of the members that stand n eighths of the way up in their sets; n is below 8. Once the floor
// has passed quantile(4) a trim frees at least half of one set, which is what pays for a visit.
func (t *terminals) quantile(n int) int64 {
	least := int64(math.MaxInt64)
	if len(t.processed) > 0 {
		least = t.processed[len(t.processed)*n/8]
	}
	if t.failed != nil {
		least = min(least, (*t.failed)[len(*t.failed)*n/8])
	}
	return least
}

// overdue reports whether more than three quarters of a set lie below compactAt, which came from a time when the set was
// mostly higher. The next entry is at the middle, so the set has to double before there is another one.
func (t *terminals) overdue() bool { return t.quantile(6) < t.compactAt }

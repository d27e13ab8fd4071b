package lease

// This file remembers which offsets are done: sorted and packed, eight bytes each.

import "slices"

// offsets is a set, sorted upwards. Neighbours in one domain are rarely adjacent, because the offsets between them
// belong to other domains; so runs would not pay, and a plain sorted slice is both small and searched in
// O(log n). Completions mostly come in rising order, which makes add an append.
type offsets []int64

func (o offsets) has(offset int64) bool {
	if len(o) == 0 || offset > o[len(o)-1] {
		return false
	}
	_, ok := slices.BinarySearch(o, offset)
	return ok
}

// from counts the members at or above floor.
func (o offsets) from(floor int64) int {
	i, _ := slices.BinarySearch(o, floor)
	return len(o) - i
}

// add inserts an offset that is not in the set. A full set first drops what lies below floor.
func (o offsets) add(offset, floor int64) offsets {
	if len(o) == cap(o) {
		o = o.trim(floor)
	}
	if len(o) == 0 || offset > o[len(o)-1] {
		return append(o, offset)
	}
	i, _ := slices.BinarySearch(o, offset)
	return slices.Insert(o, i, offset)
}

// trim drops the members below floor, and the room for them once three quarters stand empty.
func (o offsets) trim(floor int64) offsets {
	if len(o) == 0 || o[0] >= floor {
		return o
	}
	i, _ := slices.BinarySearch(o, floor)
	kept := o[i:]
	if cap(o) > scanMax && len(kept) <= cap(o)/4 {
		return slices.Clone(kept)
	}
	return o[:copy(o, kept)]
}

// terminals are the done offsets of a domain, other than the one that it completed last (see State).
type terminals struct {
	processed, failed offsets
	room              [2]int64 // first backing of processed, so that a small set is one object
}

func newTerminals() *terminals {
	t := new(terminals)
	t.processed = t.room[:0]
	return t
}

func (t *terminals) trim(floor int64) {
	t.processed, t.failed = t.processed.trim(floor), t.failed.trim(floor)
}

func (t *terminals) len() int { return len(t.processed) + len(t.failed) }

// middle is a member with as many members of its set below it as above. Once the floor has passed it a trim frees at
// least half of that set, which is what pays for the visit.
func (t *terminals) middle() int64 {
	o := t.processed
	if len(t.failed) > len(o) {
		o = t.failed
	}
	return o[len(o)/2]
}

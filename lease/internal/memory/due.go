// SPDX-License-Identifier: Apache-2.0

// A stripe's domains by the floor at which compacting them pays, so that Compact visits those and no others.

package memory

import "slices"

// compactionQueue holds slots by floor. Domains complete much in the order of offsets, so most
// entries arrive in rising order and stand in a queue; those that arrive late stand in a binary min-heap beside it.
type compactionQueue struct {
	ring  []compactionEntry // n of them from first on, rising
	first int
	n     int
	heap  []compactionEntry
	stamp uint16 // of the entry pushed last
}

// compactionEntry is valid while its slot bears its stamp. An entry that was replaced stays in the queue until its floor has
// passed. If its stamp has recurred at the slot by then, the slot is visited too early and gets a new entry, which does no
// harm.
type compactionEntry struct {
	floor int64
	slot  uint32
	stamp uint16
}

// push adds an entry and returns its stamp, which is not 0.
func (a *compactionQueue) push(floor int64, slot uint32) (stamp uint16) {
	if a.stamp++; a.stamp == 0 {
		a.stamp++
	}
	a.add(compactionEntry{floor, slot, a.stamp})
	return a.stamp
}

func (a *compactionQueue) add(e compactionEntry) {
	if a.n == 0 || a.ring[a.wrap(a.first+a.n-1)].floor <= e.floor {
		if a.n == len(a.ring) {
			a.grow()
		}
		a.ring[a.wrap(a.first+a.n)] = e
		a.n++
		return
	}
	a.heap = append(a.heap, e)
	i := len(a.heap) - 1
	for up := (i - 1) / 2; i > 0 && a.heap[up].floor > e.floor; up = (i - 1) / 2 {
		a.heap[i] = a.heap[up]
		i = up
	}
	a.heap[i] = e
}

// wrap turns a place counted past the ring's end into a place.
func (a *compactionQueue) wrap(i int) int {
	if i >= len(a.ring) {
		i -= len(a.ring)
	}
	return i
}

// grow adds an eighth to the ring.
func (a *compactionQueue) grow() {
	ring := slices.Grow([]compactionEntry(nil), a.n+a.n/8+4)
	ring = append(append(ring, a.ring[a.first:]...), a.ring[:a.first]...)
	a.ring, a.first = ring[:cap(ring)], 0
}

// pop removes and returns the entry with the least floor, if that lies below floor.
func (a *compactionQueue) pop(floor int64) (e compactionEntry, ok bool) {
	switch {
	case len(a.heap) > 0 && (a.n == 0 || a.heap[0].floor < a.ring[a.first].floor):
		if a.heap[0].floor >= floor {
			return e, false
		}
		e = a.heap[0]
		a.popHeap()
	case a.n > 0 && a.ring[a.first].floor < floor:
		e = a.ring[a.first]
		a.first = a.wrap(a.first + 1)
		a.n--
	default:
		return e, false
	}
	return e, true
}

func (a *compactionQueue) popHeap() {
	last := len(a.heap) - 1
	e := a.heap[last]
	a.heap = a.heap[:last]
	if last == 0 {
		return
	}
	i := 0
	for down := 1; down < last; down = 2*i + 1 {
		if down+1 < last && a.heap[down+1].floor < a.heap[down].floor {
			down++
		}
		if a.heap[down].floor >= e.floor {
			break
		}
		a.heap[i] = a.heap[down]
		i = down
	}
	a.heap[i] = e
}

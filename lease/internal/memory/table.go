// SPDX-License-Identifier: Apache-2.0

// How a domain's record is found by name: a slab of records, the names packed beside it, and an open-addressed
// index over both. The stripe's lock guards all of it.

package memory

import (
	"slices"

	"github.com/stopbank/stopbank/lease/internal/step"
)

// record is a slot of the slab, one cache line: a domain, or a free slot. The name is a copy, because the caller's may
// be a piece of a large message that must not live on with it. A free slot keeps its bytes for the next domain.
type record struct {
	state   step.State
	nameAt  uint32 // into table.names, which stay below 4 GiB: the stripes together would hold a hundred of that
	nameLen uint16 // at most 65,535
	stamp   uint16 // stamp of its entry in the compaction queue; 0: none
	// Neighbours, each plus one, in the list that the state belongs to; next also links the free slots.
	prev, next uint32
}

// chunk is what the slab grows by. It is as large as the runtime allots without a header of its own, so that records
// do not straddle cache lines and two cores at work on two domains do not disturb each other.
type chunk [8]record

const (
	slabMin = 32      // slots; a slab not worth giving back
	packMin = 4 << 10 // bytes of names not worth packing
)

// table maps names to slots. An index entry is the name's hash above slot+1, so that neither a probe nor a removal
// looks into the slab before the hash has matched; 0 is a free entry.
type table struct {
	index  []uint64 // its length is a power of two, at least 4/3 of the number of slots
	chunks []*chunk
	names  []byte
	slots  int // free ones included
	live   int
	wasted int // bytes of names that no slot refers to
	// Free slots, each plus one, queue up: the next domain gets the one that is free longest. Domains come and go
	// much in the order of offsets, so the queue runs through memory in order.
	firstFree, lastFree uint32
}

func entryOf(hash, slot uint32) uint64 { return uint64(hash)<<32 | uint64(slot+1) }
func hashIn(entry uint64) uint32       { return uint32(entry >> 32) }
func slotIn(entry uint64) uint32       { return uint32(entry) - 1 }

func (t *table) record(slot uint32) *record {
	return &t.chunks[slot/uint32(len(chunk{}))][slot%uint32(len(chunk{}))]
}

func (t *table) name(slot uint32) []byte {
	r := t.record(slot)
	return t.names[r.nameAt : r.nameAt+uint32(r.nameLen)]
}

func (t *table) find(hash uint32, domain string) (slot uint32, ok bool) {
	if len(t.index) == 0 {
		return 0, false
	}
	mask := uint32(len(t.index) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		entry := t.index[i]
		if entry == 0 {
			return 0, false
		}
		if hashIn(entry) == hash && string(t.name(slotIn(entry))) == domain {
			return slotIn(entry), true
		}
	}
}

// insert adds a domain that find did not find.
func (t *table) insert(hash uint32, domain string, s step.State) (slot uint32) {
	if t.firstFree != 0 {
		slot = t.firstFree - 1
		t.firstFree = t.record(slot).next
	} else {
		slot = uint32(t.slots)
		t.slots++
		if int(slot)/len(chunk{}) == len(t.chunks) {
			t.chunks = append(t.chunks, new(chunk))
		}
		if t.slots > len(t.index)/4*3 {
			t.reindex(max(8, 2*len(t.index)))
		}
	}
	t.rename(slot, domain)
	t.record(slot).state = s
	t.link(entryOf(hash, slot))
	t.live++
	return slot
}

// rename gives slot a name, in the bytes of its last one if they suffice.
func (t *table) rename(slot uint32, domain string) {
	r := t.record(slot)
	if len(domain) > int(r.nameLen) {
		t.wasted += int(r.nameLen)
		r.nameLen = 0
		if len(t.names)+len(domain) > cap(t.names) {
			t.pack(len(domain))
		}
		r.nameAt = uint32(len(t.names))
		t.names = append(t.names, domain...)
	} else {
		t.wasted += int(r.nameLen) - len(domain)
		copy(t.names[r.nameAt:], domain)
	}
	r.nameLen = uint16(len(domain))
}

// pack makes room for more bytes of names. If half of the bytes are waste it is in moving the others together.
func (t *table) pack(more int) {
	if !t.wasteful() {
		need := len(t.names) + more
		t.names = append(slices.Grow([]byte(nil), need+need/8), t.names...)
		return
	}
	need := len(t.names) - t.wasted + more
	packed := slices.Grow([]byte(nil), need+need/8)
	for slot := range uint32(t.slots) {
		name := t.name(slot)
		t.record(slot).nameAt = uint32(len(packed))
		packed = append(packed, name...)
	}
	t.names, t.wasted = packed, 0
}

// wasteful reports whether so much of the names is waste that packing them pays.
func (t *table) wasteful() bool { return t.wasted >= packMin && t.wasted >= len(t.names)/2 }

// remove frees slot, whose state is vacant and whose name hashes to hash.
func (t *table) remove(hash, slot uint32) {
	mask := uint32(len(t.index) - 1)
	hole := hash & mask
	for t.index[hole] != entryOf(hash, slot) {
		hole = (hole + 1) & mask
	}
	// Every later entry of the run whose probe passed through the hole moves up into it.
	for i := (hole + 1) & mask; t.index[i] != 0; i = (i + 1) & mask {
		if home := hashIn(t.index[i]) & mask; (i-home)&mask >= (i-hole)&mask {
			t.index[hole] = t.index[i]
			hole = i
		}
	}
	t.index[hole] = 0
	t.record(slot).next = 0
	if t.firstFree == 0 {
		t.firstFree = slot + 1
	} else {
		t.record(t.lastFree - 1).next = slot + 1
	}
	t.lastFree = slot + 1
	t.live--
}

func (t *table) reindex(places int) {
	old := t.index
	t.index = make([]uint64, places)
	for _, entry := range old {
		if entry != 0 {
			t.link(entry)
		}
	}
}

// shrink moves the live records, if they fill less than a quarter of the slab, into a slab of their own, slots
// renumbered, and reports whether it did.
func (t *table) shrink() bool {
	if t.slots <= slabMin || t.live >= t.slots/4 {
		return false
	}
	old := *t
	*t = table{}
	for _, entry := range old.index {
		if entry != 0 {
			t.insert(hashIn(entry), string(old.name(slotIn(entry))), old.record(slotIn(entry)).state)
		}
	}
	return true
}

func (t *table) link(entry uint64) {
	mask := uint32(len(t.index) - 1)
	i := hashIn(entry) & mask
	for t.index[i] != 0 {
		i = (i + 1) & mask
	}
	t.index[i] = entry
}

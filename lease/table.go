package lease

// This file finds a domain's record by name: a slab of records, the names packed beside it, and an open-addressed
// index over both. The stripe's lock guards all of it.

import (
	"math"
	"slices"
)

// record is a slot of the slab, one cache line: a domain, or a free slot. The name is a copy, because the caller's may
// be a piece of a large message that must not live on with it. A free slot keeps its bytes for the next domain.
type record struct {
	state   State
	nameAt  uint32 // into table.names, which stay below 4 GiB: the stripes together would hold a hundred of that
	nameLen uint16
	noted   bool // has an appointment in the stripe's agenda
	hash    uint32
	at      uint32 // the domain's place in the list that its state belongs to; of a free slot, the next one plus one
}

const (
	slabMin   = 32             // records; a slab not worth giving back
	packMin   = 4 << 10        // bytes of names not worth packing
	maxDomain = math.MaxUint16 // bytes, what nameLen can say
)

// table maps names to slots. An index entry is the name's hash above slot+1, so that neither a probe nor a removal
// looks into the slab before the hash has matched; 0 is a free entry.
type table struct {
	index   []uint64 // its length is a power of two, at least 4/3 of the slab's capacity
	records []record
	names   []byte
	live    int
	wasted  int // bytes of names that no slot refers to
	// Free slots, each plus one, queue up: the next domain gets the one that is free longest. Domains come and go
	// much in the order of offsets, so the queue runs through memory in order.
	firstFree, lastFree uint32
}

func entryOf(hash, slot uint32) uint64 { return uint64(hash)<<32 | uint64(slot+1) }
func hashIn(entry uint64) uint32       { return uint32(entry >> 32) }
func slotIn(entry uint64) uint32       { return uint32(entry) - 1 }
func (t *table) name(slot uint32) []byte {
	r := &t.records[slot]
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

// insert adds a domain that find did not find. It may move the slab.
func (t *table) insert(hash uint32, domain string, s State) (slot uint32) {
	if t.firstFree != 0 {
		slot = t.firstFree - 1
		t.firstFree = t.records[slot].at
	} else {
		if len(t.records) == cap(t.records) {
			t.resize(len(t.records) + len(t.records)/8 + 4)
		}
		slot = uint32(len(t.records))
		t.records = t.records[:slot+1]
	}
	t.rename(slot, domain)
	t.records[slot].state, t.records[slot].hash = s, hash
	t.link(entryOf(hash, slot))
	t.live++
	return slot
}

// rename gives slot a name, in the bytes of its last one if they suffice.
func (t *table) rename(slot uint32, domain string) {
	r := &t.records[slot]
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
	if t.wasted < packMin || t.wasted < len(t.names)/2 {
		need := len(t.names) + more
		t.names = append(slices.Grow([]byte(nil), need+need/8), t.names...)
		return
	}
	need := len(t.names) - t.wasted + more
	packed := slices.Grow([]byte(nil), need+need/8)
	for slot := range t.records {
		name := t.name(uint32(slot))
		t.records[slot].nameAt = uint32(len(packed))
		packed = append(packed, name...)
	}
	t.names, t.wasted = packed, 0
}

// remove frees slot, whose state is vacant.
func (t *table) remove(slot uint32) {
	r := &t.records[slot]
	mask := uint32(len(t.index) - 1)
	hole := r.hash & mask
	for t.index[hole] != entryOf(r.hash, slot) {
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
	r.state, r.at = State{}, 0
	if t.firstFree == 0 {
		t.firstFree = slot + 1
	} else {
		t.records[t.lastFree-1].at = slot + 1
	}
	t.lastFree = slot + 1
	t.live--
}

// resize moves the slab into room for size records, slots unchanged, and sizes the index for it.
func (t *table) resize(size int) {
	t.records = append(slices.Grow([]record(nil), size), t.records...)
	places := 8
	for places/4*3 < cap(t.records) {
		places *= 2
	}
	if places == len(t.index) {
		return
	}
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
	if len(t.records) <= slabMin || t.live >= len(t.records)/4 {
		return false
	}
	old := *t
	*t = table{}
	t.resize(old.live)
	for _, entry := range old.index {
		if entry != 0 {
			t.insert(hashIn(entry), string(old.name(slotIn(entry))), old.records[slotIn(entry)].state)
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

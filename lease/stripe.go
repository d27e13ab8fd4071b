package lease

// This file is one stripe of a Memory ledger: the domains that hash to it, and the one lock that guards them.

import (
	"hash/maphash"
	"sync"
	"time"
)

// stripe owns its domains whole: a domain never leaves its stripe and a stripe never leaves its ledger, so the lock
// that guards a domain is the same one for ever, whether the domain has a record, has none, or has lost it (L6).
// A record is looked up, used and dropped inside one hold of the lock; no reference to it survives the unlock.
//
// While mu is held nothing foreign runs: no observer, no loop body, no caller's code at all.
type stripe struct {
	mu sync.Mutex // guards all that follows

	// What most calls write comes first and fits the lock's cache line: between cores it travels with the lock.

	floor int64
	// last is the greatest token handed out here: the high-water mark that keeps the tokens of a domain rising
	// when the domain itself has been forgotten (L9). The next one is a stride, the number of stripes, further on; each
	// stripe starts at its own place below that, which keeps tokens apart without a counter that every stripe would write.
	last   Token
	stride Token
	heads  [2]uint32 // first slots, plus one, of the leased domains and of the idle ones with a backlog
	_      [24]byte

	table
	due    compactionQueue // domains with done offsets
	spares spares
	seed   maphash.Seed

	_ [64]byte // the next stripe's lock lies on another cache line
}

const (
	heldList = iota
	readyList
	noList
)

// list tells which list of its stripe a state belongs to.
func (s *State) list() int {
	switch {
	case s.phase == leased:
		return heldList
	case s.backlog.len() > 0:
		return readyList
	}
	return noList
}

// step carries op out and writes what it came to into r. The lock is held.
func (st *stripe) step(op *Op, hash uint32, r *Result) error {
	var s *State
	slot, found := st.find(hash, op.Domain)
	if found {
		s = &st.record(slot).state
	} else {
		var absent State // gets a record only if op leaves something in it
		s = &absent
	}
	before := s.list()
	op.Floor, op.Fresh, op.spares = st.floor, st.last+st.stride, &st.spares
	if op.Kind.grants() && before != heldList {
		op.Now = time.Now().UnixNano()
	}
	err := s.Step(op, r)
	if !r.Changed {
		return err
	}
	after := s.list()
	if !found {
		slot = st.insert(hash, op.Domain, *s)
	}
	if r.Token == op.Fresh {
		st.last = op.Fresh
	}
	if before != after {
		st.removeFromList(before, slot)
		st.addToList(after, slot)
		if before == heldList { // a completion: now there is a done offset
			st.schedule(slot)
		}
	}
	return nil
}

// schedule enters slot in the compaction queue if it has a done offset and no entry, or an entry that is overdue.
func (st *stripe) schedule(slot uint32) {
	r := st.record(slot)
	done := r.state.done
	if r.stamp != 0 && (done == nil || !done.overdue()) {
		return
	}
	if floor, ok := r.state.due(); ok {
		r.stamp = st.due.push(floor, slot)
		if done != nil {
			done.compactAt = floor
		}
	}
}

func (st *stripe) addToList(list int, slot uint32) {
	if list == noList {
		return
	}
	r := st.record(slot)
	r.prev, r.next = 0, st.heads[list]
	if r.next != 0 {
		st.record(r.next - 1).prev = slot + 1
	}
	st.heads[list] = slot + 1
}

func (st *stripe) removeFromList(list int, slot uint32) {
	if list == noList {
		return
	}
	r := st.record(slot)
	if r.prev == 0 {
		st.heads[list] = r.next
	} else {
		st.record(r.prev - 1).next = r.next
	}
	if r.next != 0 {
		st.record(r.next - 1).prev = r.prev
	}
}

// sweep compacts up to limit of the domains for which floor makes that worth while, drops those that are left vacant, and
// reports whether there are no more. The lock is held.
func (st *stripe) sweep(floor int64, limit int) (done bool) {
	st.floor = floor
	op := Op{Kind: OpCompact, Floor: floor, spares: &st.spares}
	for range limit {
		e, ok := st.due.pop(floor)
		if !ok {
			if st.shrink() {
				st.rebuildLists()
			} else if st.wasteful() {
				st.pack(0)
			}
			return true
		}
		r := st.record(e.slot)
		if r.stamp != e.stamp {
			continue // replaced by a later entry
		}
		r.stamp = 0
		r.state.compact(&op)
		if st.schedule(e.slot); r.state.vacant() {
			st.remove(uint32(maphash.Bytes(st.seed, st.name(e.slot))), e.slot)
		}
	}
	return false
}

// rebuildLists builds lists and due anew, after the slots have been renumbered.
func (st *stripe) rebuildLists() {
	st.heads, st.due, st.spares = [2]uint32{}, compactionQueue{}, spares{}
	for slot := range uint32(st.slots) {
		st.addToList(st.record(slot).state.list(), slot)
		st.schedule(slot)
	}
}

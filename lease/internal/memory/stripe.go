// SPDX-License-Identifier: Apache-2.0

// One stripe of a ledger in memory: the domains that hash to it, and the one lock that guards them.

package memory

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/stopbank/stopbank/lease/internal/step"
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
	last   uint64
	stride uint64
	heads  [3]uint32 // first slots, plus one, of the domains under each index; that of step.Neither is not kept
	_      [20]byte

	table
	due    compactionQueue // domains with done offsets
	spares step.Spares
	seed   maphash.Seed

	_ [64]byte // the next stripe's lock lies on another cache line
}

// stepLocked carries op out and writes the answer into r.
func (st *stripe) stepLocked(op *step.Op, hash uint32, r *step.Result) {
	var s *step.State
	slot, found := st.find(hash, op.Domain)
	if found {
		s = &st.record(slot).state
	} else {
		var absent step.State // gets a record only if op leaves something in it
		s = &absent
	}
	before := s.Index()
	op.Floor, op.Fresh, op.Spares = st.floor, st.last+st.stride, &st.spares
	if op.Kind.Grants() && before != step.Held {
		op.Now = time.Now().UnixNano()
	}
	s.Step(op, r)
	if !r.Changed {
		return
	}
	after := s.Index()
	if !found {
		slot = st.insert(hash, op.Domain, *s)
	}
	if r.Token == op.Fresh {
		st.last = op.Fresh
	}
	if before != after {
		st.removeFromList(before, slot)
		st.addToList(after, slot)
		if before == step.Held { // a completion: now there is a done offset
			st.schedule(slot)
		}
	}
}

// appendList appends the domains under index to items.
func (st *stripe) appendList(items []step.Item, index step.Index) []step.Item {
	st.mu.Lock()
	defer st.mu.Unlock()
	for next := st.heads[index]; next != 0; next = st.record(next - 1).next {
		if item, ok := st.record(next-1).state.Item(string(st.name(next-1)), index); ok {
			items = append(items, item)
		}
	}
	return items
}

// schedule enters slot in the compaction queue if it has a done offset and no entry, or an entry that is overdue.
func (st *stripe) schedule(slot uint32) {
	r := st.record(slot)
	if r.stamp != 0 && !r.state.Overdue() {
		return
	}
	if floor, ok := r.state.Due(); ok {
		r.stamp = st.due.push(floor, slot)
		r.state.Scheduled(floor)
	}
}

func (st *stripe) addToList(index step.Index, slot uint32) {
	if index == step.Neither {
		return
	}
	r := st.record(slot)
	r.prev, r.next = 0, st.heads[index]
	if r.next != 0 {
		st.record(r.next - 1).prev = slot + 1
	}
	st.heads[index] = slot + 1
}

func (st *stripe) removeFromList(index step.Index, slot uint32) {
	if index == step.Neither {
		return
	}
	r := st.record(slot)
	if r.prev == 0 {
		st.heads[index] = r.next
	} else {
		st.record(r.prev - 1).next = r.next
	}
	if r.next != 0 {
		st.record(r.next - 1).prev = r.prev
	}
}

// sweep compacts up to limit of the domains for which floor makes that worth while, drops those that are left vacant, and
// reports whether there are no more.
func (st *stripe) sweepLocked(floor int64, limit int) (done bool) {
	st.floor = floor
	op := step.Op{Kind: step.Compact, Floor: floor, Spares: &st.spares}
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
		r.state.Step(&op, new(step.Result))
		if st.schedule(e.slot); r.state.Vacant() {
			st.remove(uint32(maphash.Bytes(st.seed, st.name(e.slot))), e.slot)
		}
	}
	return false
}

// rebuildLists builds lists and due anew, after the slots have been renumbered.
func (st *stripe) rebuildLists() {
	st.heads, st.due, st.spares = [3]uint32{}, compactionQueue{}, step.Spares{}
	for slot := range uint32(st.slots) {
		st.addToList(st.record(slot).state.Index(), slot)
		st.schedule(slot)
	}
}

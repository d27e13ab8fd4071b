// SPDX-License-Identifier: Apache-2.0

// What tests look at inside an engine: everything that must agree, and which lock guards what.

package memory

import (
	"fmt"
	"slices"

	"github.com/stopbank/stopbank/lease/internal/step"
)

// Audit checks that index, slab, names, lists and compaction queue tell the same story, and every domain's state against L2.
func (m *Engine) Audit() error {
	for i := range m.stripes {
		st := &m.stripes[i]
		st.mu.Lock()
		err := st.audit()
		st.mu.Unlock()
		if err != nil {
			return fmt.Errorf("stripe %d: %w", i, err)
		}
	}
	return nil
}

func (st *stripe) audit() error {
	var entries, free, named, scheduled int
	stamps := map[uint32]uint16{}
	floors := map[uint32]int64{}
	for i := range st.due.n {
		e := st.due.ring[st.due.wrap(st.due.first+i)]
		if st.record(e.slot).stamp == e.stamp {
			stamps[e.slot], floors[e.slot] = e.stamp, e.floor
		}
	}
	for _, e := range st.due.heap {
		if st.record(e.slot).stamp == e.stamp {
			stamps[e.slot], floors[e.slot] = e.stamp, e.floor
		}
	}
	var lists [3]int
	for _, entry := range st.index {
		if entry == 0 {
			continue
		}
		entries++
		slot := slotIn(entry)
		r := st.record(slot)
		if found, ok := st.find(hashIn(entry), string(st.name(slot))); !ok || found != slot {
			return fmt.Errorf("slot %d is not found by its name %q", slot, st.name(slot))
		}
		if err := r.state.Audit(); err != nil {
			return fmt.Errorf("%q: %w", st.name(slot), err)
		}
		if r.state.Vacant() {
			return fmt.Errorf("%q is vacant but has a record", st.name(slot))
		}
		if index := r.state.Index(); index != step.Neither {
			lists[index]++
		}
		if r.stamp != 0 {
			scheduled++
		}
		if _, ok := r.state.Due(); ok && r.stamp == 0 {
			return fmt.Errorf("%q has done offsets but no entry in the compaction queue", st.name(slot))
		}
		if done := slices.Concat(r.state.Done()); len(done) > 0 && r.state.Index() != step.Held &&
			floors[slot] > max(slices.Max(done), st.floor-1) {
			return fmt.Errorf("%q is to be compacted at %d, above all that it has done", st.name(slot), floors[slot])
		}
	}
	for next := st.firstFree; next != 0; next = st.record(next - 1).next {
		if free++; free > st.slots {
			return fmt.Errorf("the free slots form a ring")
		}
	}
	for slot := range uint32(st.slots) {
		named += int(st.record(slot).nameLen)
	}
	for list, head := range st.heads {
		index := step.Index(list)
		prev := uint32(0)
		for next := head; next != 0; next = st.record(next - 1).next {
			r := st.record(next - 1)
			if lists[list]--; r.state.Index() != index || r.prev != prev || lists[list] < 0 {
				return fmt.Errorf("%q does not belong where list %d has it", st.name(next-1), list)
			}
			prev = next
		}
	}
	switch {
	case entries != st.live || entries+free != st.slots:
		return fmt.Errorf("%d entries, %d live, %d free, %d slots", entries, st.live, free, st.slots)
	case lists != [3]int{}:
		return fmt.Errorf("%v domains are missing in the lists", lists)
	case named+st.wasted != len(st.names):
		return fmt.Errorf("%d bytes named, %d wasted, %d in all", named, st.wasted, len(st.names))
	case len(stamps) != scheduled:
		return fmt.Errorf("%d valid entries for %d domains", len(stamps), scheduled)
	}
	return nil
}

// Done returns the offsets of domain that are processed and those that are failed, each in any order. Some of those that
// lie below the floor are among them.
func (m *Engine) Done(domain string) (processed, failed []int64) {
	st, hash := m.stripe(domain)
	st.mu.Lock()
	defer st.mu.Unlock()
	slot, ok := st.find(hash, domain)
	if !ok {
		return nil, nil
	}
	return st.record(slot).state.Done()
}

// Domains counts the records.
func (m *Engine) Domains() int { return m.sum(func(st *stripe) int { return st.live }) }

// WastedNames counts the bytes of names that nothing refers to.
func (m *Engine) WastedNames() int { return m.sum(func(st *stripe) int { return st.wasted }) }

// sum adds up what part says of each stripe, under its lock.
func (m *Engine) sum(part func(*stripe) int) int {
	n := 0
	for i := range m.stripes {
		m.stripes[i].mu.Lock()
		n += part(&m.stripes[i])
		m.stripes[i].mu.Unlock()
	}
	return n
}

// LockStripe holds the lock that guards domain until release is called.
func (m *Engine) LockStripe(domain string) (release func()) {
	st, _ := m.stripe(domain)
	st.mu.Lock()
	return st.mu.Unlock
}

// SameStripe reports whether one lock guards both.
func (m *Engine) SameStripe(a, b string) bool {
	x, _ := m.stripe(a)
	y, _ := m.stripe(b)
	return x == y
}

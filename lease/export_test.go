package lease

// This file opens a Memory to its tests: an audit of everything that must agree inside it.

import (
	"fmt"
	"math"
	"slices"
)

// Audit checks that index, slab, names, lists and compaction queue tell the same story, and every domain's state against L2.
func (m *Memory) Audit() error {
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
	var lists [2]int
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
		if err := r.state.audit(); err != nil {
			return fmt.Errorf("%q: %w", st.name(slot), err)
		}
		if r.state.vacant() {
			return fmt.Errorf("%q is vacant but has a record", st.name(slot))
		}
		if list := r.state.list(); list != noList {
			lists[list]++
		}
		if r.stamp != 0 {
			scheduled++
		}
		if _, ok := r.state.due(); ok && r.stamp == 0 {
			return fmt.Errorf("%q has done offsets but no entry in the compaction queue", st.name(slot))
		}
		if top, ok := r.state.highest(); ok && r.state.phase != leased && floors[slot] > max(top, st.floor-1) {
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
		prev := uint32(0)
		for next := head; next != 0; next = st.record(next - 1).next {
			r := st.record(next - 1)
			if lists[list]--; r.state.list() != list || r.prev != prev || lists[list] < 0 {
				return fmt.Errorf("%q does not belong where list %d has it", st.name(next-1), list)
			}
			prev = next
		}
	}
	switch {
	case entries != st.live || entries+free != st.slots:
		return fmt.Errorf("%d entries, %d live, %d free, %d slots", entries, st.live, free, st.slots)
	case lists != [2]int{}:
		return fmt.Errorf("%v domains are missing in the lists", lists)
	case named+st.wasted != len(st.names):
		return fmt.Errorf("%d bytes named, %d wasted, %d in all", named, st.wasted, len(st.names))
	case len(stamps) != scheduled:
		return fmt.Errorf("%d valid entries for %d domains", len(stamps), scheduled)
	}
	return nil
}

// highest is the highest done offset.
func (s *State) highest() (top int64, ok bool) {
	top = math.MinInt64
	if s.phase == processed || s.phase == failed {
		top, ok = s.offset, true
	}
	if s.done != nil {
		ok = true
		if n := len(s.done.processed); n > 0 {
			top = max(top, s.done.processed[n-1])
		}
		if s.done.failed != nil {
			top = max(top, slices.Max(*s.done.failed))
		}
	}
	return top, ok
}

// Audit checks s against L2.
func (s *State) Audit() error { return s.audit() }

func (s *State) audit() error {
	backlog := s.backlog.appendTo(nil)
	seen := map[int64]bool{}
	for _, offset := range backlog {
		if seen[offset] {
			return fmt.Errorf("%d waits twice", offset)
		}
		seen[offset] = true
		if !s.backlog.has(offset) {
			return fmt.Errorf("%d waits but is not found", offset)
		}
	}
	if s.backlog != nil && s.backlog.index != nil {
		indexed := 0
		for _, at := range s.backlog.index {
			if at != 0 {
				indexed++
			}
		}
		if indexed != len(backlog) {
			return fmt.Errorf("%d wait, %d are indexed", len(backlog), indexed)
		}
	}
	if s.done != nil {
		sets := []offsets{s.done.processed}
		if s.done.failed != nil {
			sets = append(sets, *s.done.failed)
		}
		for _, set := range sets {
			if !slices.IsSorted(set) {
				return fmt.Errorf("done offsets out of order: %v", set)
			}
			for _, offset := range set {
				if offset > s.done.top {
					return fmt.Errorf("%d is above the top, %d", offset, s.done.top)
				}
				if seen[offset] {
					return fmt.Errorf("%d is in two places", offset)
				}
				seen[offset] = true
			}
		}
	}
	if s.phase != blank && seen[s.offset] {
		return fmt.Errorf("%d is current or completed last, and in another place too", s.offset)
	}
	return nil
}

// Done returns the offsets of domain that are processed and those that are failed, each in any order. Some of those that
// lie below the floor are among them.
func (m *Memory) Done(domain string) (processedOnes, failedOnes []int64) {
	st, hash := m.stripe(domain)
	st.mu.Lock()
	defer st.mu.Unlock()
	slot, ok := st.find(hash, domain)
	if !ok {
		return nil, nil
	}
	s := &st.record(slot).state
	if s.done != nil {
		processedOnes = append(processedOnes, s.done.processed...)
		if s.done.failed != nil {
			failedOnes = append(failedOnes, *s.done.failed...)
		}
	}
	switch s.phase {
	case processed:
		processedOnes = append(processedOnes, s.offset)
	case failed:
		failedOnes = append(failedOnes, s.offset)
	}
	return processedOnes, failedOnes
}

// BacklogProbe returns how many places a search for an absent offset visits on average, over the whole index, in a
// backlog of these offsets.
func BacklogProbe(offsets []int64) float64 {
	q := new(queue)
	for _, offset := range offsets {
		if !q.has(offset) {
			q.push(offset)
		}
	}
	if q.index == nil {
		return float64(q.n)
	}
	visited := 0
	for i := range q.index {
		for j := i; q.index[j] != 0; j = (j + 1) % len(q.index) {
			visited++
		}
	}
	return float64(visited) / float64(len(q.index))
}

// TerminalMoves returns how many members a set moves to take n rising offsets when the floor follows at a distance of lag.
func TerminalMoves(lag, n int64, failures bool) (moved int) {
	t, how := newTerminals(), processed
	set := func() offsets { return t.processed }
	if failures {
		how = failed
		set = func() offsets {
			if t.failed == nil {
				return nil
			}
			return *t.failed
		}
	}
	for offset := range n {
		before := set()
		t.add(offset, how, offset-lag)
		if after := set(); len(before) > 0 && (len(after) != len(before)+1 || &after[0] != &before[0]) {
			moved += len(after)
		}
	}
	return moved
}

// Domains counts the records.
func (m *Memory) Domains() int { return m.sum(func(st *stripe) int { return st.live }) }

// WastedNames counts the bytes of names that nothing refers to.
func (m *Memory) WastedNames() int { return m.sum(func(st *stripe) int { return st.wasted }) }

// sum adds up what part says of each stripe, under its lock.
func (m *Memory) sum(part func(*stripe) int) int {
	n := 0
	for i := range m.stripes {
		m.stripes[i].mu.Lock()
		n += part(&m.stripes[i])
		m.stripes[i].mu.Unlock()
	}
	return n
}

// LockStripe holds the lock that guards domain until release is called.
func (m *Memory) LockStripe(domain string) (release func()) {
	st, _ := m.stripe(domain)
	st.mu.Lock()
	return st.mu.Unlock
}

// SameStripe reports whether one lock guards both.
func (m *Memory) SameStripe(a, b string) bool {
	x, _ := m.stripe(a)
	y, _ := m.stripe(b)
	return x == y
}

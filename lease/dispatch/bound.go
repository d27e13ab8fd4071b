package dispatch

// This file is a bound that partitions share (D9): its size, each partition's part, and the order of those that wait.

import (
	"slices"
	"sync"
)

// bound is a number of records for all partitions together, or the one trial; a Dispatcher alone has bounds of its own. A returned
// trial goes to the partition that has waited longest. Room for records cannot be passed on like this, because a partition with room may
// have no record to read. So a partition takes no more while it has as many as are free: there is always room for another one, and
// reading partitions converge to equal parts. Every partition may have one record, whatever the others have.
type bound struct {
	most int
	room bool // of records

	mu     sync.Mutex // guards all below and the quotas; nothing foreign runs under it. Taken inside a Dispatcher's, never around it
	taken  int
	quotas []*quota
	turn   uint64
}

// quota is one partition's part of a bound.
type quota struct {
	*bound
	has   int
	since uint64 // the turn in which it began to wait; 0: it does not
	// wake says that there is room, or that the trial is its own. It is called under the bound's lock, so it must neither block nor call back.
	wake func()
}

func (b *bound) join(wake func()) *quota {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &quota{bound: b, wake: wake}
	b.quotas = append(b.quotas, s)
	return s
}

// leave removes s from the partitions that share the bound. Its records count until they are given back.
func (s *quota) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quotas = slices.DeleteFunc(s.quotas, func(other *quota) bool { return other == s })
	s.pass()
}

// free is how much s may take. The lock is held.
func (b *bound) free(s *quota) int {
	free := max(0, b.most-b.taken)
	if !b.room || len(b.quotas) == 1 {
		return free
	}
	return max((free-s.has+1)/2, 1-s.has, 0) // after that s has as many as are free
}

// next is the waiting partition with the least; of several, the one that has waited longest. The lock is held.
func (b *bound) next() *quota {
	var next *quota
	for _, s := range b.quotas {
		if s.since > 0 && (next == nil || s.has < next.has || s.has == next.has && s.since < next.since) {
			next = s
		}
	}
	return next
}

// take takes up to n. It returns how much it took, and how much more was free; if nothing was free, wake is called later.
func (s *quota) take(n int) (took, more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.free(s)
	if free == 0 && s.since == 0 {
		s.turn++
		s.since = s.turn
	}
	took = min(n, free)
	s.has += took
	s.taken += took
	return took, free - took
}

// give gives n back, or all that there is if that is less.
func (s *quota) give(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, s.has)
	s.has -= n
	s.taken -= n
	s.pass()
}

// pass wakes those for whom there is something. The lock is held.
func (b *bound) pass() {
	for s := b.next(); s != nil && b.free(s) > 0; s = b.next() {
		if s.since = 0; !b.room { // the trial goes from hand to hand
			s.has++
			b.taken++
		}
		s.wake()
	}
}

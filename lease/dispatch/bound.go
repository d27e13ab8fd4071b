package dispatch

// This file is a bound that partitions share (D9): how much there is, who has how much of it, and whose turn it is.

import (
	"slices"
	"sync"
)

// bound is a number of records for all partitions together, or the one trial; a Dispatcher alone has bounds of its own. The trial goes from hand
// to hand: what is given back goes to whoever waits for the longest time. Records cannot, because who has room for one may
// find none to read. There, nobody takes more while he has as many as are free, so that there is always room for who comes next, and those
// who read come to have equally many; and one is everybody's, whatever the others have.
type bound struct {
	most int
	room bool // of records

	mu     sync.Mutex // guards all below and the quotas; nothing foreign runs under it. Taken inside a Dispatcher's, never around it
	taken  int
	quotas []*quota
	turn   uint64
}

// quota is what one partition has of a bound.
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

// leave counts s no longer among those who share. What it has it still has, until it gives it back.
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

// next is who waits with the least; of those, for the longest time. The lock is held.
func (b *bound) next() *quota {
	var next *quota
	for _, s := range b.quotas {
		if s.since > 0 && (next == nil || s.has < next.has || s.has == next.has && s.since < next.since) {
			next = s
		}
	}
	return next
}

// take takes up to n. It returns how much it took, and how much more it could have had; if there was nothing, s will be woken.
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

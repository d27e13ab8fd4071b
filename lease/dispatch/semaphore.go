// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file is a semaphore that partitions share (D9): its size, each partition's part, and the order of those that wait.

import (
	"slices"
	"sync"
)

// semaphore bounds the records of all partitions together, or the suspects on trial (one); a Dispatcher alone has semaphores of
// its own. A returned trial goes to the partition that has waited longest. Room for records cannot be handed over like this,
// because a partition with room may have no record to read. So a partition acquires no more than leaves as much free as it then
// holds: there is always room for another partition, and reading partitions converge to equal parts. Every partition may hold
// one record, whatever the others hold.
type semaphore struct {
	limit     int
	ofRecords bool

	// mu guards all below and the allotments. No foreign code runs under it. It may be locked while a Dispatcher's is held, never
	// the other way around.
	mu      sync.Mutex
	inUse   int
	parts   []*allotment
	tickets uint64 // handed out
}

// allotment is one partition's part of a semaphore.
type allotment struct {
	*semaphore
	held   int
	ticket uint64 // its place among those that wait, lower first; 0: it does not wait
	// wake says that there is room, or that the trial is this partition's. It runs under mu, so it must neither block nor call
	// back.
	wake func()
}

func (s *semaphore) join(wake func()) *allotment {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &allotment{semaphore: s, wake: wake}
	s.parts = append(s.parts, a)
	return a
}

// leave removes a from the partitions that share the semaphore. What it holds counts until it is released.
func (a *allotment) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parts = slices.DeleteFunc(a.parts, func(other *allotment) bool { return other == a })
	a.wakeLocked()
}

// freeLocked returns how much a may acquire.
func (s *semaphore) freeLocked(a *allotment) int {
	free := max(0, s.limit-s.inUse)
	if !s.ofRecords || len(s.parts) == 1 {
		return free
	}
	return max((free-a.held+1)/2, 1-a.held, 0) // after that a holds as many as are free
}

// nextWaiterLocked returns the waiting partition that holds the least; of several, the one that has waited longest.
func (s *semaphore) nextWaiterLocked() *allotment {
	var next *allotment
	for _, a := range s.parts {
		if a.ticket > 0 && (next == nil || a.held < next.held || a.held == next.held && a.ticket < next.ticket) {
			next = a
		}
	}
	return next
}

// acquire acquires up to n. It returns how much, and how much more was free; if nothing was free, wake is called later.
func (a *allotment) acquire(n int) (acquired, more int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	free := a.freeLocked(a)
	if free == 0 && a.ticket == 0 {
		a.tickets++
		a.ticket = a.tickets
	}
	acquired = min(n, free)
	a.held += acquired
	a.inUse += acquired
	return acquired, free - acquired
}

// part returns an even part of all.
func (a *allotment) part() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.limit / max(1, len(a.parts))
}

// release releases n, or all that a holds if that is less. Below 0 it takes what is not free: the rest of a record that is larger
// than what was.
func (a *allotment) release(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n = min(n, a.held)
	a.held -= n
	a.inUse -= n
	a.wakeLocked()
}

// wakeLocked wakes the partitions that wait, while something is free for them.
func (s *semaphore) wakeLocked() {
	for a := s.nextWaiterLocked(); a != nil && s.freeLocked(a) > 0; a = s.nextWaiterLocked() {
		if a.ticket = 0; !s.ofRecords { // the trial is handed over; room for records has to be acquired
			a.held++
			s.inUse++
		}
		a.wake()
	}
}

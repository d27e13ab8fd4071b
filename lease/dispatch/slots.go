// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file hands out the slots of MaxInFlight to partitions (D9) and owners (D11), at the Rate of all of them (D10).

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// slots are the MaxInFlight of all partitions together; a Dispatcher alone has its own. A free slot is granted to the first of
// the waiters, and its partition then picks the record. With a Config.Rate, a slot is granted only when the rate has answered
// for the one before it, so that an attempt that the rate admits is the first in order at that time.
//
// The order is fair over owners: each is charged the time for which its records held slots, and the least charged goes first,
// as the scheduler of Linux did with the vruntime of processes (CFS).
type slots struct {
	limit     int
	hasRate   bool
	maxCharge float64 // AttemptTimeout, in seconds: the most that a record is charged, and that an owner owes

	// mu guards all below, the waiters and the accounts. No foreign code runs under it. It may be locked while a Dispatcher's is
	// held, never the other way around.
	mu          sync.Mutex
	inUse       int
	waiting     []*waiter
	owners      map[string]*account
	sweepAt     int         // the number of owners at which sweepLocked looks through them
	tickets     uint64      // handed out
	virtualTime float64     // in seconds: the least that a waiting owner has used. It never falls
	rateAsked   bool        // the rate is being called
	rateTimer   *time.Timer // until it fires, the rate admits no attempt; nil: it may
}

// account is the slots of an owner or of a partition.
type account struct {
	held    int
	overdue int // of held: their handlers have exceeded AttemptTimeout. They are lost to all alike, and do not count in the order
	waiters int // of an owner, one for each partition
	waiting int // of the waiters: those that wait now
	// used is the time for which an owner has held slots, in seconds: a thousand slots would fill a Duration in four months. An
	// owner that had nothing to do comes back with at least virtualTime: idling saves nothing up.
	used float64
}

// waiter is one owner's place in the queue for slots, in one partition.
type waiter struct {
	*slots
	domains          *owner
	owner, partition *account
	ticket           uint64 // its place among the waiters of equal rank, lower first; 0: it does not wait
	lastTicket       uint64 // of the slot that was granted last
	exempt           bool   // it waits for a step that needs no rate
	unanswered       int    // slots for which the rate has not answered yet
	// wake uses a slot. It runs under mu, so it must neither block nor call back.
	wake func()
}

func newSlots(cfg Config) *slots {
	return &slots{
		limit: cfg.MaxInFlight, hasRate: cfg.Rate != nil, maxCharge: cfg.AttemptTimeout.Seconds(), owners: map[string]*account{},
	}
}

// join returns a new waiter of owner.
func (s *slots) join(owner string, partition *account) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.owners[owner]
	if a == nil {
		s.sweepLocked()
		a = &account{}
		s.owners[owner] = a
	}
	a.waiters++
	return &waiter{slots: s, owner: a, partition: partition}
}

// leave ends a waiter. It keeps the slots that it holds until it releases them.
func (w *waiter) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dequeueLocked()
	w.owner.waiters--
	w.grantAllLocked()
}

// sweepLocked deletes, from time to time, the accounts of owners that have nothing to do and are ahead of nobody, and of the
// others without work those beyond a number.
func (s *slots) sweepLocked() {
	const idlers = 1024
	if len(s.owners) < s.sweepAt {
		return
	}
	idle := 0
	for name, a := range s.owners {
		if a.waiters > 0 || a.held > 0 {
			continue
		}
		if idle++; idle > idlers || a.used <= s.virtualTime {
			delete(s.owners, name)
		}
	}
	s.sweepAt = max(idlers, 2*len(s.owners))
}

func (a *account) onTime() int { return a.held - a.overdue }

// compare orders waiters: the owner with the fewest slots first, then the one that has used the least; within an owner the
// partition with the fewest slots, then the waiter that has waited longest.
func (w *waiter) compare(other *waiter) int {
	return cmp.Or(
		cmp.Compare(w.owner.onTime(), other.owner.onTime()), cmp.Compare(w.owner.used, other.owner.used),
		cmp.Compare(w.partition.onTime(), other.partition.onTime()), cmp.Compare(w.ticket, other.ticket))
}

// request makes w wait for a slot; exempt says that it needs no rate.
func (w *waiter) request(exempt bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.exempt = exempt
	if w.ticket == 0 {
		w.tickets++
		w.enqueueLocked(w.tickets)
	}
	w.grantAllLocked()
}

func (w *waiter) enqueueLocked(ticket uint64) {
	if w.ticket == 0 {
		if w.owner.waiting == 0 && w.owner.held == 0 {
			w.owner.used = max(w.owner.used, w.virtualTime)
		}
		w.owner.waiting++
		w.waiting = append(w.waiting, w)
	}
	w.ticket = ticket
}

func (w *waiter) dequeueLocked() {
	if w.ticket == 0 {
		return
	}
	w.ticket = 0
	w.owner.waiting--
	i := slices.Index(w.waiting, w)
	last := len(w.waiting) - 1
	w.waiting[i] = w.waiting[last]
	w.waiting[last] = nil
	w.waiting = w.waiting[:last]
}

// grantLocked grants a slot to the first waiter that may have one, and returns it; nil if no slot is free or no waiter may.
func (s *slots) grantLocked() *waiter {
	if s.inUse >= s.limit {
		return nil
	}
	var first *waiter
	for _, w := range s.waiting {
		if (w.exempt || !s.rateAsked && s.rateTimer == nil) && (first == nil || w.compare(first) < 0) {
			first = w
		}
	}
	if first == nil {
		return nil
	}
	least := first.owner.used
	for _, w := range s.waiting {
		least = min(least, w.owner.used)
	}
	s.virtualTime = max(s.virtualTime, least)
	first.lastTicket = first.ticket
	first.dequeueLocked()
	first.owner.held++
	first.partition.held++
	s.inUse++
	if s.hasRate && !first.exempt {
		s.rateAsked = true
		first.unanswered++
	}
	return first
}

func (s *slots) grantAllLocked() {
	for w := s.grantLocked(); w != nil; w = s.grantLocked() {
		w.wake()
	}
}

// release releases a slot that was held for so long. If the next one is granted to the same partition, release returns its
// waiter instead of waking it.
func (w *waiter) release(used time.Duration) (next *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner.held--
	w.partition.held--
	w.inUse--
	w.owner.used = min(w.owner.used+min(used.Seconds(), w.maxCharge), w.virtualTime+w.maxCharge)
	if next = w.grantLocked(); next != nil && next.partition != w.partition {
		next.wake()
		next = nil
	}
	w.grantAllLocked()
	return next
}

// rateAnswered is called once for each slot, when the rates have answered: no attempt that needs Config.Rate starts before wait
// is over. A waiter whose attempt was rejected, by Config.Rate or RateOf, keeps its place in the queue.
func (w *waiter) rateAnswered(rejected bool, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if rejected && w.ticket > 0 {
		w.ticket = min(w.ticket, w.lastTicket)
	}
	if w.unanswered > 0 {
		w.unanswered--
		w.rateAsked = false
	}
	if wait > 0 && w.rateTimer == nil {
		w.rateTimer = time.AfterFunc(wait, w.rateTimerFired)
	}
	w.grantAllLocked()
}

func (s *slots) rateTimerFired() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rateTimer = nil
	s.grantAllLocked()
}

// rateExhausted reports whether Config.Rate admits no attempt now.
func (s *slots) rateExhausted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rateTimer != nil
}

// availability returns how many slots a partition holds, and whether it can get no further one for now.
func (s *slots) availability(partition *account) (held int, none bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return partition.held, s.inUse >= s.limit || s.rateTimer != nil || s.rateAsked
}

// countOverdue adds n to the handlers that have exceeded AttemptTimeout and go on.
func (w *waiter) countOverdue(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner.overdue += n
	w.partition.overdue += n
}

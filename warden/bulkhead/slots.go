// SPDX-License-Identifier: Apache-2.0

// Slots: which compartment holds how many, and who gets the next one. All the arithmetic of lending is here.

package bulkhead

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/fair"
)

// Let a compartment hold n slots and reserve r = Guaranteed - Lendable. The slots that are neither held nor reserved are
//
//	unreserved = total - sum of max(n, r)
//
// Below r a compartment takes a reserved slot, and no max(n, r) changes; from r on it takes an unreserved one, if there is
// one. So as long as unreserved is not negative, at most total slots are held (B1), and a compartment that holds fewer than r
// can take one more (B2). After a shrink unreserved is negative, until enough slots have been given back.

// reservedLocked returns r, the number of slots that no other compartment may use.
func (p *pool) reservedLocked() int { return p.share.Guaranteed - p.share.Lendable }

// shareLocked puts new shares, in the order of ranked, in force.
func (s *Set) shareLocked(total int, shares []Share) {
	s.total, s.unreserved = total, total
	withheld := total < s.plan.Total
	for i, p := range s.ranked {
		p.share = shares[i]
		withheld = withheld || p.share != p.planned
		s.unreserved -= max(p.held, p.reservedLocked())
	}
	if withheld || s.proposed != s.plan.Revision {
		s.proposed = s.plan.Revision
		s.restartLocked(s.clock())
	}
	s.serveLocked()
}

// fullLocked returns the bound that keeps c from taking one more slot, and its value; 0: none.
func (s *Set) fullLocked(c *Compartment) (decision.Bound, int) {
	p := c.pool
	switch {
	case p.tenants != nil && c.boundedLocked() >= p.config.Tenants.Max:
		return BoundTenant, p.config.Tenants.Max
	case p.boundedLocked() >= p.share.Max && p.lowered:
		return decision.BoundTarget, p.share.Max
	case p.boundedLocked() >= p.share.Max && p.share.Max < p.planned.Max:
		return BoundTotal, s.total // lowered by a decision, and the compartment's with it
	case p.boundedLocked() >= p.share.Max && p.share.Max == p.share.Guaranteed:
		return BoundSlots, p.share.Max
	case p.boundedLocked() >= p.share.Max:
		return BoundBorrow, p.share.Max
	case s.held >= s.total, p.held >= p.reservedLocked() && s.unreserved <= 0, s.total < s.plan.Total && p.onlyLentLocked():
		return BoundTotal, s.total
	}
	return "", 0
}

// onlyLentLocked reports whether p, which has no Timeout and all of its guarantee, could only take a slot that another
// compartment is guaranteed. Below the planned total nobody waits for slots that may never come back.
func (p *pool) onlyLentLocked() bool {
	if p.planned.Timeout > 0 || p.held < p.share.Guaranteed {
		return false
	}
	free := p.set.total
	for _, other := range p.set.pools {
		free -= max(other.held, other.share.Guaranteed)
	}
	return free <= 0
}

func (s *Set) freeLocked(c *Compartment) bool {
	bound, _ := s.fullLocked(c)
	return bound == ""
}

// takeLocked gives c a slot that is free.
func (s *Set) takeLocked(c *Compartment) {
	p := c.pool
	if p.held >= p.reservedLocked() {
		s.unreserved--
	}
	p.held++
	s.held++
	c.held++
	p.demand.peak, s.peak = max(p.demand.peak, p.held), max(s.peak, s.held)
	c.countLocked()
	if p.tenants != nil {
		p.tenants.Serve(c.tenant)
	}
	p.waiting.fix(c)
}

// giveLocked takes a slot back and passes it on, first to a call of c that runs beyond the slots.
func (s *Set) giveLocked(c *Compartment) {
	p := c.pool
	if c.withoutSlot > 0 {
		c.withoutSlot--
		p.withoutSlot--
	} else {
		p.held--
		s.held--
		c.held--
		if p.held >= p.reservedLocked() {
			s.unreserved++
		}
	}
	c.countLocked()
	p.waiting.fix(c)
	s.serveLocked()
	s.settleLocked(c)
}

// serveLocked grants free slots to waiting calls, one by one.
func (s *Set) serveLocked() {
	if s.waiting == 0 {
		return
	}
	now := s.clock()
	for c := s.nextLocked(); c != nil; c = s.nextLocked() {
		w, how := c.queue.Next(now, c.pool.waitingRuleLocked())
		if w != nil {
			s.enterLocked(c)
			s.turns++
			c.turn = s.turns // one slot a turn
			c.pool.waiting.fix(c)
			c.grantLocked(w, how, now)
		}
		s.settleLocked(c)
	}
}

// nextLocked returns the compartment whose call gets the next slot: of the pool that goes first, the tenant that goes first. nil:
// no slot is free for any waiting call.
func (s *Set) nextLocked() *Compartment {
	var first *pool
	for _, p := range s.ranked {
		if len(p.waiting) > 0 && s.admitsLocked(p.waiting[0]) && (first == nil || p.beforeLocked(first)) {
			first = p
		}
	}
	if first == nil {
		return nil
	}
	return first.waiting[0]
}

// beforeLocked reports whether p gets the next slot rather than b, which is no less critical: first by being below the guarantee,
// then by criticality, then by the smaller used share of the guarantee, or the fewer borrowed slots.
func (p *pool) beforeLocked(b *pool) bool {
	ownP, ownB := p.held < p.share.Guaranteed, b.held < b.share.Guaranteed
	switch {
	case ownP != ownB:
		return ownP
	case p.config.Criticality != b.config.Criticality:
		return p.config.Criticality > b.config.Criticality
	case ownP:
		return smaller(p.held, p.share.Guaranteed, b.held, b.share.Guaranteed)
	}
	return p.held-p.share.Guaranteed < b.held-b.share.Guaranteed
}

// settleLocked updates the state that follows from the waiting and running calls of c: its turn, and whether it may be evicted.
func (s *Set) settleLocked(c *Compartment) {
	p := c.pool
	if c.countLocked(); p.tenants != nil {
		p.tenants.Settle(c.tenant)
	}
	switch waits := c.queue.Len() > 0; {
	case waits && c.turn == 0:
		s.waiting++
		s.turns++
		c.turn = s.turns
		heap.Push(&p.waiting, c)
	case !waits && c.turn != 0:
		s.waiting--
		heap.Remove(&p.waiting, c.index)
		c.turn = 0
	}
}

// waiting is a heap of the compartments and tenants of one pool with waiting calls: the one with the fewest in flight first,
// then the one that has used the least slot time, both per weight, then the longest waiting for its turn. A grant costs O(log n)
// for n of them. Without tenants it has at most one element.
type waiting []*Compartment

// fix restores the heap order after the number in flight of c, or what it has used, has changed.
func (q *waiting) fix(c *Compartment) {
	if c.turn != 0 {
		heap.Fix(q, c.index)
	}
}

func (q *waiting) Len() int { return len(*q) }

func (q *waiting) Less(i, j int) bool {
	a, b := (*q)[i], (*q)[j]
	return cmp.Or(fair.Compare(a.tenant, b.tenant, a.pool.config.Tenants.Max), cmp.Compare(a.turn, b.turn)) < 0
}

func (q *waiting) Swap(i, j int) {
	all := *q
	all[i], all[j] = all[j], all[i]
	all[i].index, all[j].index = i, j
}

// Push and Pop implement heap.Interface.
func (q *waiting) Push(c any) {
	c.(*Compartment).index = len(*q)
	*q = append(*q, c.(*Compartment))
}

// Pop removes the last element.
func (q *waiting) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return last
}

// A loan is the number of guaranteed slots that a compartment has lent, and the number it has borrowed.
type loan struct{ lent, borrowed int }

// loansLocked returns each compartment's lent and borrowed slots. Borrowers use slots that no compartment is guaranteed first;
// the rest counts as lent by the least critical compartments that have idle guaranteed slots.
func (s *Set) loansLocked() map[*pool]loan {
	out := map[*pool]loan{}
	lent := -s.total
	for _, p := range s.ranked {
		borrowed := max(0, p.held-p.share.Guaranteed)
		lent += p.share.Guaranteed + borrowed
		out[p] = loan{borrowed: borrowed}
	}
	for i := len(s.ranked) - 1; i >= 0 && lent > 0; i-- {
		p := s.ranked[i]
		l := out[p]
		l.lent = min(lent, max(0, p.share.Guaranteed-p.held))
		lent -= l.lent
		out[p] = l
	}
	return out
}

func (s *Set) clock() time.Duration { return time.Since(s.epoch) }

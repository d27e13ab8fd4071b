// Who holds which place, and whether there is one more for whoever asks: all of the arithmetic of lending.

package bulkhead

import (
	"container/heap"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
)

// Let a compartment hold n places and keep r = Guaranteed - Lendable for itself. What anybody may take is the stock,
//
//	stock = total - sum of max(n, r)
//
// Below r a compartment takes what is its own, and no max(n, r) changes; beyond it takes from the stock, while that is above
// 0. So as long as the stock is not negative, no more than total are held (B1), and whoever holds fewer than r can have
// one more (B2). After a shrink the stock is negative, until enough has been given back.

// keeps is r: how many places nobody else may use.
func (p *part) keeps() int { return p.share.Guaranteed - p.share.Lendable }

// share puts new shares, in the order of ranked, in force. The caller holds Set.mu, as for all of this file.
func (s *Set) share(total int, shares []Share) {
	s.total, s.stock = total, total
	for i, p := range s.ranked {
		p.share = shares[i]
		s.stock -= max(p.held, p.keeps())
	}
	s.serve()
}

// full is the bound that keeps c from having one more place, with its number; 0: none does.
func (s *Set) full(c *Compartment) (limiter.Bound, int) {
	p := c.part
	switch {
	case p.tenants != nil && c.bounded() >= p.config.Tenants.Max:
		return limiter.BoundTenant, p.config.Tenants.Max
	case p.bounded() >= p.share.Max && p.share.Max < p.planned.Max:
		return limiter.BoundTotal, s.total // lowered by a decision, and the compartment's with it
	case p.bounded() >= p.share.Max && p.share.Max == p.share.Guaranteed:
		return limiter.BoundPlaces, p.share.Max
	case p.bounded() >= p.share.Max:
		return limiter.BoundBorrow, p.share.Max
	case s.held >= s.total, p.held >= p.keeps() && s.stock <= 0:
		return limiter.BoundTotal, s.total
	}
	return 0, 0
}

func (s *Set) free(c *Compartment) bool {
	bound, _ := s.full(c)
	return bound == 0
}

// take gives c a place that is free.
func (s *Set) take(c *Compartment) {
	p := c.part
	if p.held >= p.keeps() {
		s.stock--
	}
	p.held++
	s.held++
	c.held++
	p.waiting.fix(c)
}

// give takes a place back, and hands it on; first of all to one that runs beyond the places.
func (s *Set) give(c *Compartment) {
	p := c.part
	if c.beyond > 0 {
		c.beyond--
		p.beyond--
	} else {
		p.held--
		s.held--
		c.held--
		if p.held >= p.keeps() {
			s.stock++
		}
		p.waiting.fix(c)
	}
	s.serve()
	s.settle(c)
}

// serve grants free places to those who wait, one by one, each to whose turn it then is.
func (s *Set) serve() {
	if s.waiting == 0 {
		return
	}
	now := s.clock()
	for c := s.next(); c != nil; c = s.next() {
		w, how := c.queue.Next(now, c.part.waitingRule())
		if w != nil {
			s.enter(c)
			s.turns++
			c.turn = s.turns // one place a turn
			c.part.waiting.fix(c)
			c.granted(w, how, now)
		}
		s.settle(c)
	}
}

// next is whose turn it is: of the compartment that goes first, the tenant that holds least. nil: there is no place for any.
func (s *Set) next() *Compartment {
	var first *part
	for _, p := range s.ranked {
		// If the tenant that holds least holds all that a tenant may have, so do the others.
		if len(p.waiting) > 0 && s.admits(p.waiting[0]) && (first == nil || p.before(first)) {
			first = p
		}
	}
	if first == nil {
		return nil
	}
	return first.waiting[0]
}

// before is whether the next place is for p rather than for b, which is no less critical: below its guarantee or not, then
// criticality, then who has used less of its guarantee or borrowed less.
func (p *part) before(b *part) bool {
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

// settle brings up to date what follows from how many of c wait and run: its turn, and whether it may be forgotten.
func (s *Set) settle(c *Compartment) {
	p := c.part
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
	if c.tenant {
		p.tenants.settle(c)
	}
}

// waiting are those of one compartment who wait for a place, as a heap: who holds fewest first, then who has waited for its
// turn for longest. Without tenants there is one at most.
type waiting []*Compartment

// fix puts c where it belongs after c.held has changed.
func (q *waiting) fix(c *Compartment) {
	if c.turn != 0 {
		heap.Fix(q, c.index)
	}
}

func (q *waiting) Len() int { return len(*q) }

func (q *waiting) Less(i, j int) bool {
	a, b := (*q)[i], (*q)[j]
	if a.held != b.held {
		return a.held < b.held
	}
	return a.turn < b.turn
}

func (q *waiting) Swap(i, j int) {
	all := *q
	all[i], all[j] = all[j], all[i]
	all[i].index, all[j].index = i, j
}

// Push and Pop are for package heap.
func (q *waiting) Push(c any) {
	c.(*Compartment).index = len(*q)
	*q = append(*q, c.(*Compartment))
}

// Pop takes the last one off.
func (q *waiting) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return last
}

// A loan is how many places of its guarantee a compartment has lent, and how many it has borrowed.
type loan struct{ lent, borrowed int }

// loans is who has lent and borrowed how much. A borrower uses first what nobody is guaranteed; what is beyond that, the
// least critical of those who have it have lent.
func (s *Set) loans() map[*part]loan {
	out := map[*part]loan{}
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

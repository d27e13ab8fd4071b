// Whose turn it is when a place has come back.

package bulkhead

import "container/heap"

// serve wakes those who have claims, one after the other and each for one place, until nobody who has one could be
// granted it. The caller holds mu, and holds it afterwards; it is let go of in between.
//
// One goroutine at a time does this; as long as it does, places beyond those kept are granted only to whose turn it is, so
// that nobody comes between the place and the one it is for. Another goroutine that gives a place back meanwhile leaves it
// at that: the first looks again before it stops. So at rest, whoever was refused and could now be granted a place has
// been woken since. A claim of somebody who does not wait any more costs one wake that finds nobody.
func (l *ledger) serve() {
	if l.short > 0 {
		l.refill()
	}
	if l.serving {
		return
	}
	for m := l.next(); m != nil; m = l.next() {
		m.account.waiting.remove(m)
		l.serving, l.turn = true, m
		if w := m.account.word.Load(); !m.account.divided && held(w) < kept(w) {
			l.turn = nil // it takes what is kept for it without the lock; one of the stock would be a second one
		}
		l.mu.Unlock()
		m.limiter.Wake()
		l.mu.Lock()
	}
	l.serving, l.turn = false, nil
}

// next is who is to be served: of the account that goes first, the member that holds least. nil: nobody can be. The caller
// holds mu.
func (l *ledger) next() *member {
	var first *account
	for _, a := range l.accounts {
		if len(a.waiting) > 0 && a.canServe(a.waiting[0]) && (first == nil || a.before(first)) {
			first = a
		}
	}
	if first == nil {
		return nil
	}
	return first.waiting[0]
}

// canServe is whether the claimant that holds least could have a place. If it holds all that a tenant may have, so do the
// others.
func (a *account) canServe(m *member) bool {
	w := a.word.Load()
	return (held(w) < kept(w) || a.stocked(w)) && (!a.divided || m.held < m.max)
}

// before is whether the next place is for a rather than for b, which comes after it in the ledger: below its guarantee or
// not, then criticality, then who has used less of its guarantee or borrowed less.
func (a *account) before(b *account) bool {
	ha, hb := held(a.word.Load()), held(b.word.Load())
	ownA, ownB := ha < a.guaranteed, hb < b.guaranteed
	switch {
	case ownA != ownB:
		return ownA
	case a.criticality != b.criticality:
		return a.criticality > b.criticality
	case ownA:
		return smaller(ha, a.guaranteed, hb, b.guaranteed)
	}
	return ha-a.guaranteed < hb-b.guaranteed
}

// enlist notes that m was refused. The caller holds mu.
func (l *ledger) enlist(m *member) {
	if m.claim == 0 {
		l.claims++
		m.claim = l.claims
		heap.Push(&m.account.waiting, m)
	}
}

// withdraw ends the claim of a member that will never come back.
func (l *ledger) withdraw(m *member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.account.waiting.remove(m)
}

// claimants are the members of one account that have claims, as a heap: who holds fewest places first, then who has
// waited longest. Guarded by ledger.mu.
type claimants []*member

func (c *claimants) remove(m *member) {
	if m.claim != 0 {
		m.claim = 0
		heap.Remove(c, m.index)
	}
}

// fix puts m where it belongs after m.held has changed.
func (c *claimants) fix(m *member) {
	if m.claim != 0 {
		heap.Fix(c, m.index)
	}
}

func (c *claimants) Len() int { return len(*c) }

func (c *claimants) Less(i, j int) bool {
	a, b := (*c)[i], (*c)[j]
	if a.held != b.held {
		return a.held < b.held
	}
	return a.claim < b.claim
}

func (c *claimants) Swap(i, j int) {
	all := *c
	all[i], all[j] = all[j], all[i]
	all[i].index, all[j].index = i, j
}

// Push and Pop are for package heap.
func (c *claimants) Push(m any) {
	m.(*member).index = len(*c)
	*c = append(*c, m.(*member))
}

// Pop takes the last one off.
func (c *claimants) Pop() any {
	old := *c
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*c = old[:len(old)-1]
	return last
}

// SPDX-License-Identifier: Apache-2.0

// The tenants among those who wait in one priority: who of them is next, and who has to leave.

package queue

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/stopbank/stopbank/warden/internal/fair"
)

// Tenant is whose a task is; nil: nobody has said so. All these together are as one tenant.
type Tenant = fair.Tenant[struct{}]

// A group are the tasks of one tenant in a lane, oldest to newest.
type group[T any] struct {
	tenant         *Tenant
	lane           *lane[T]
	oldest, newest *Waiter[T]
	waiting        int
	turn           uint64 // breaks ties: when it began to wait, or had its last turn
	next, most     int    // its places in these heaps of the lane
}

// groups are those of a lane that have a tenant.
type groups[T any] struct {
	of   map[*Tenant]*group[T]
	next nextOf[T] // who goes first
	most mostOf[T] // who has most waiting, per weight
}

// nextOf and mostOf are heaps. A change in one costs O(log n) for n tenants that wait.
type (
	nextOf[T any] []*group[T]
	mostOf[T any] []*group[T]
)

func (h nextOf[T]) Len() int           { return len(h) }
func (h nextOf[T]) Less(i, j int) bool { return h[i].before(h[j]) }
func (h nextOf[T]) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].next, h[j].next = i, j }
func (h *nextOf[T]) Push(g any)        { g.(*group[T]).next = len(*h); *h = append(*h, g.(*group[T])) }
func (h *nextOf[T]) Pop() any          { return pop((*[]*group[T])(h)) }

func (h mostOf[T]) Len() int           { return len(h) }
func (h mostOf[T]) Less(i, j int) bool { return h[i].crowds(h[j].waiting, h[j].tenant) }
func (h mostOf[T]) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].most, h[j].most = i, j }
func (h *mostOf[T]) Push(g any)        { g.(*group[T]).most = len(*h); *h = append(*h, g.(*group[T])) }
func (h *mostOf[T]) Pop() any          { return pop((*[]*group[T])(h)) }

func pop[T any](all *[]*group[T]) any {
	last := len(*all) - 1
	g := (*all)[last]
	(*all)[last] = nil
	*all = (*all)[:last]
	return g
}

// before reports whether the tenant of g goes before that of o.
func (g *group[T]) before(o *group[T]) bool {
	return cmp.Or(fair.Compare(g.tenant, o.tenant, 0), cmp.Compare(g.turn, o.turn)) < 0
}

// crowds reports whether g has more waiting, per weight, than n of that tenant.
func (g *group[T]) crowds(n int, of *Tenant) bool { return g.waiting*of.Weight > n*g.tenant.Weight }

// join adds w to the group of its tenant.
func (q *Queue[T]) join(l *lane[T], w *Waiter[T]) {
	g := &l.plain
	if w.Tenant != nil {
		if g = l.groups.of[w.Tenant]; g == nil {
			g = q.newGroup(l, w.Tenant)
		}
		w.Tenant.Waiting++
	}
	if w.group, w.before = g, g.newest; g.newest == nil {
		g.oldest = w
	} else {
		g.newest.after = w
	}
	g.newest = w
	if g.waiting++; g.waiting == 1 {
		g.turn = w.number
	}
	if w.Tenant != nil {
		if g.waiting == 1 {
			heap.Push(&l.groups.next, g)
			heap.Push(&l.groups.most, g)
		} else {
			heap.Fix(&l.groups.most, g.most)
		}
	}
}

// part removes w from its group.
func (q *Queue[T]) part(w *Waiter[T]) {
	g := w.group
	if w.before == nil {
		g.oldest = w.after
	} else {
		w.before.after = w.after
	}
	if w.after == nil {
		g.newest = w.before
	} else {
		w.after.before = w.before
	}
	w.group, w.before, w.after = nil, nil, nil
	g.waiting--
	if w.Tenant == nil {
		return
	}
	w.Tenant.Waiting--
	if of := &g.lane.groups; g.waiting > 0 {
		heap.Fix(&of.most, g.most)
	} else {
		heap.Remove(&of.next, g.next)
		heap.Remove(&of.most, g.most)
		delete(of.of, g.tenant)
		q.spare = append(q.spare, g)
	}
}

func (q *Queue[T]) newGroup(l *lane[T], t *Tenant) *group[T] {
	g := new(group[T])
	if n := len(q.spare); n > 0 {
		g = q.spare[n-1]
		q.spare = q.spare[:n-1]
	}
	*g = group[T]{tenant: t, lane: l}
	if l.groups.of == nil {
		l.groups.of = map[*Tenant]*group[T]{}
	}
	l.groups.of[t] = g
	return g
}

// Served puts a tenant in its place after what it has in flight, or has used, has changed.
func (q *Queue[T]) Served(t *Tenant) {
	for _, l := range q.lanes {
		if g := l.groups.of[t]; g != nil {
			heap.Fix(&l.groups.next, g.next)
		}
	}
}

// first returns the group of a lane that goes first.
func (l *lane[T]) first() *group[T] {
	switch {
	case len(l.groups.next) == 0:
		return &l.plain
	case l.plain.waiting > 0 && l.plain.before(l.groups.next[0]):
		return &l.plain
	}
	return l.groups.next[0]
}

// crowd returns the group of a lane that has most waiting.
func (l *lane[T]) crowd() *group[T] {
	switch {
	case len(l.groups.most) == 0:
		return &l.plain
	case l.plain.waiting > 0 && l.plain.crowds(l.groups.most[0].waiting, l.groups.most[0].tenant):
		return &l.plain
	}
	return l.groups.most[0]
}

// above reports whether a tenant has its share of the slots in flight, or more: their number by its weight among those of all that are not
// idle, one at least.
func (r Rule) above(t *Tenant) bool {
	return r.Weights > 0 && t.InFlight >= max(1, r.Slots*t.Weight/r.Weights)
}

// next returns the group whose task starts next: of the highest priority the one that goes first. A tenant above its share does not go before
// others by calling its tasks critical; nil: none waits.
func (q *Queue[T]) next(r Rule) *group[T] {
	for i, l := range q.lanes {
		if l.waiting == 0 {
			continue
		}
		g := l.first()
		if l.priority == highest && r.above(g.tenant) {
			for _, lower := range q.lanes[i+1:] {
				if o := lower.first(); lower.waiting > 0 && o.tenant != g.tenant && fair.Compare(o.tenant, g.tenant, 0) < 0 {
					return o
				}
			}
		}
		return g
	}
	return nil
}

// crowded returns a task of the tenant that has most waiting in the lane of w, if that is more than w's tenant would have: the oldest in a
// standing queue, else the newest. If none waits there, or with less, it may be critical ones of a tenant above its share. nil: there is none.
func (q *Queue[T]) crowded(l *lane[T], w *Waiter[T], now time.Duration, r Rule) *Waiter[T] {
	if r.Weights == 0 {
		return nil
	}
	mine, of := &l.plain, w.Tenant
	if of == nil {
		of = &q.Others
	} else if mine = l.groups.of[of]; mine == nil {
		mine = new(group[T])
	}
	for _, in := range [...]*lane[T]{l, q.lanes[0]} {
		g := in.crowd()
		if g.tenant == of || !g.crowds(mine.waiting+1, of) || in != l && (in.priority != highest || !r.above(g.tenant)) {
			continue
		}
		x := g.newest
		if q.stands(in, now, r) {
			x = g.oldest
		}
		if !x.exempt {
			return x
		}
	}
	return nil
}

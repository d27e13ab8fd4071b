package dispatch

// This file is a bound that partitions share (D9): how much there is, who has how much of it, and whose turn it is.

import (
	"slices"
	"sync"
)

// bound is a number of places, or of records, for all partitions together; a Dispatcher alone has bounds of its own.
type bound struct {
	most  int // over all
	least int // what each may have whatever the others have

	mu    sync.Mutex // guards all below and the stakes; nothing foreign runs under it. Taken inside a Dispatcher's, never around it
	taken int
	stakes []*stake
	turn  uint64
}

// stake is what one partition has of a bound.
type stake struct {
	*bound
	has   int
	since uint64 // the turn in which it began to wait; 0: it does not
	// wake says that there is room, and returns how much of it was taken with that. It is called under the bound's lock, so it must neither
	// block nor call back.
	wake func() int
}

func (b *bound) join(wake func() int) *stake {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &stake{bound: b, wake: wake}
	b.stakes = append(b.stakes, p)
	return p
}

// leave counts p no longer among those who share. What it has it still has, until it gives it back.
func (p *stake) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stakes = slices.DeleteFunc(p.stakes, func(other *stake) bool { return other == p })
	p.pass()
}

// free is how much p may take. Half of everything, divided by the number of partitions, is what the others find free when they
// come; p leaves it to them unless that is more than half in all.
func (b *bound) free(p *stake) int {
	share := max(1, b.most/(2*max(1, len(b.stakes))))
	left := 0
	for _, other := range b.stakes {
		if other != p {
			left += max(0, share-other.has)
		}
	}
	free := b.most - b.taken
	return max(free-min(left, b.most/2), min(free, share-p.has), b.least-p.has, 0)
}

// next is who waits with the least; of those, for the longest time.
func (b *bound) next() *stake {
	var next *stake
	for _, p := range b.stakes {
		if p.since > 0 && (next == nil || p.has < next.has || p.has == next.has && p.since < next.since) {
			next = p
		}
	}
	return next
}

// take takes up to n; if that is nothing, p will be woken. It returns how much it took, and how much more there would have been.
func (p *stake) take(n int) (took, more int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.free(p)
	if free == 0 && p.since == 0 {
		p.turn++
		p.since = p.turn
	}
	took = min(n, free)
	p.has += took
	p.bound.taken += took
	return took, free - took
}

// give gives n back, or all that there is if that is less, to whose turn it is.
func (p *stake) give(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n = min(n, p.has)
	p.has -= n
	p.bound.taken -= n
	p.pass()
}

// pass wakes those for whom there is room. The lock is held.
func (b *bound) pass() {
	for p := b.next(); p != nil && b.free(p) > 0; p = b.next() {
		p.since = 0
		n := p.wake()
		p.has += n
		b.taken += n
	}
}

// yields: another one waits that has less than p.
func (p *stake) yields() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.next()
	return next != nil && next.has < p.has
}

// SPDX-License-Identifier: Apache-2.0

// Emptied containers, kept for the next domain that needs one.

package step

import "math"

// spareMax bounds each kind of spare of a stripe; what is above it goes to the garbage collector.
const spareMax = 64

// Spares are containers without content, for the states under one lock. A nil *Spares allocates and keeps nothing.
type Spares struct {
	queues []*queue
	dones  []*terminals
}

func (p *Spares) queue() *queue {
	if p == nil || len(p.queues) == 0 {
		return new(queue)
	}
	last := len(p.queues) - 1
	q := p.queues[last]
	p.queues = p.queues[:last]
	return q
}

// keepQueue takes an empty queue. Its ring is small: popping has shrunk it.
func (p *Spares) keepQueue(q *queue) {
	if p != nil && len(p.queues) < spareMax && len(q.buf) <= scanMax {
		p.queues = append(p.queues, q)
	}
}

func (p *Spares) terminals() *terminals {
	if p == nil || len(p.dones) == 0 {
		return newTerminals()
	}
	last := len(p.dones) - 1
	t := p.dones[last]
	p.dones = p.dones[:last]
	return t
}

// keepTerminals takes an emptied set, unless it was a large one.
func (p *Spares) keepTerminals(t *terminals) {
	if p != nil && len(p.dones) < spareMax && cap(t.processed) <= scanMax {
		t.top = math.MinInt64
		p.dones = append(p.dones, t)
	}
}

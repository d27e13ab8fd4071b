// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file is one domain among the others: its place and their order, and what of it has to be read again.

import (
	"container/heap"
	"time"
)

// place says where a domain is among the others.
type place uint8

const (
	idle    place = iota // waits for a record, or has none
	ready                // in the heap
	working              // a goroutine has it
	pausing              // its timer will make it ready
	paced                // pausing, because of its own rate
)

// deferral remembers records of a domain, or of an owner, that were read and dropped for want of room.
type deferral struct {
	deferred bool // the records from deferredFrom on have to be read again
	// deferredFrom is above the records of the queue, and that of a domain below that of its owner.
	deferredFrom int64
}

// lacks reports whether the record at offset has to be read again.
func (l *deferral) lacks(offset int64) bool { return l.deferred && offset >= l.deferredFrom }

// domain is a domain with work in it. Guarded by Dispatcher.mu; while it works, only the goroutine that has it steps its machine.
type domain struct {
	name  string
	owner *owner
	machine

	deferral
	watched bool // it is in Dispatcher.watched

	place    place
	priority int64 // its lowest offset when it went into the heap
	timer    *time.Timer
}

// low returns the lowest offset of the domain that may not be done.
func (dom *domain) low() (offset int64, ok bool) {
	offset, ok = dom.machine.low()
	if dom.deferred && (!ok || dom.deferredFrom < offset) {
		offset, ok = dom.deferredFrom, true
	}
	return offset, ok
}

// empty reports whether the domain may be forgotten.
func (dom *domain) empty() bool {
	_, work := dom.low()
	return dom.place == idle && dom.state == open && !work
}

// byOffset is a heap of ready domains, the lowest offset first.
type byOffset []*domain

var _ heap.Interface = (*byOffset)(nil)

func (h *byOffset) Len() int           { return len(*h) }
func (h *byOffset) Less(i, j int) bool { return (*h)[i].priority < (*h)[j].priority }
func (h *byOffset) Swap(i, j int)      { (*h)[i], (*h)[j] = (*h)[j], (*h)[i] }
func (h *byOffset) Push(x any)         { *h = append(*h, x.(*domain)) }

func (h *byOffset) Pop() any {
	last := len(*h) - 1
	dom := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return dom
}

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

// domain is a domain with work in it. Guarded by Dispatcher.mu; while it works, only the goroutine that has it steps its machine.
type domain struct {
	name  string
	owner *owner
	machine

	// Records were read and dropped for want of room: those from deferred on have to be read again. It is above the records of the
	// queue, and below that of its owner.
	deferred mark
	watched  bool // it is in Dispatcher.watched

	place    place
	priority int64 // its lowest offset when it went into the heap
	timer    *time.Timer
	long     bool // it pauses for long
}

// rests reports whether the next step of the domain is far away.
func (dom *domain) rests() bool { return dom.place == pausing && dom.long }

// low returns the lowest offset of the domain that may not be done.
func (dom *domain) low() mark { return dom.machine.low().lower(dom.deferred) }

// empty reports whether the domain may be forgotten.
func (dom *domain) empty() bool {
	return dom.place == idle && dom.state == open && !dom.low().set
}

// mark is an offset, if there is one.
type mark struct {
	set    bool
	offset int64
}

// lower returns the lower of two marks.
func (m mark) lower(other mark) mark {
	if !m.set || other.set && other.offset < m.offset {
		return other
	}
	return m
}

// upTo reports whether the mark is at or below offset.
func (m mark) upTo(offset int64) bool { return m.set && m.offset <= offset }

// skip moves a mark in a range to its end.
func (m mark) skip(from, end int64) mark {
	if from <= m.offset && m.offset < end {
		m.offset = end
	}
	return m
}

// below returns the mark if it is below offset, and none otherwise.
func (m mark) below(offset int64) mark { return mark{m.set && m.offset < offset, m.offset} }

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

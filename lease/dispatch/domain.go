package dispatch

// This file is one domain with work: its queue, its state, and the order among domains.

import (
	"container/heap"
	"slices"
	"time"

	"github.com/stopbank/stopbank/lease"
)

// item is a record that was fetched and is not done.
type item struct {
	Record
	since time.Time // when it was fetched
	dead  bool      // the ledger gave it up before a restart: only its dead letter remains
	cause error     // why a dead item never reached the ledger; nil otherwise
	waits bool      // the ledger has it in its backlog
}

// runState is whether a domain can run. Only a working domain is accessed without the lock, by the one goroutine that works on it.
type runState uint8

const (
	idle    runState = iota // waits for a record, or has none
	ready                   // in the heap
	working                 // a goroutine has it
	pausing                 // its timer will make it ready
)

// stage is a domain's next step.
type stage uint8

const (
	fresh   stage = iota // no lease: take the next record
	missing              // a lease, but its record is not here (yet)
	leased               // a lease and its record: run the handler
	ended                // the handler has returned: write the outcome to the ledger
	givenUp              // given up: deliver the dead letter
	fenced               // another process has taken the lease: ask the source whose the partition is
)

// lag is how far a domain, or an owner, is behind the reading position.
type lag struct {
	behind bool  // records from mark on were put off
	mark   int64 // those of a queue are below it; that of a domain is below its owner's
}

// domain is a domain with work in it. Guarded by Dispatcher.mu; while it works, recordState belongs to the goroutine that works on it.
type domain struct {
	name  string
	of    *owner
	queue []item // fetched and not done, offsets rising
	// open: the ledger has work of this domain at the offset at, in the queue or not: a lease, the head of its backlog, or what was
	// just given up. The floor must not pass it.
	open bool
	at   int64

	lag
	attended bool // it is in Dispatcher.attended

	state runState
	asks  bool  // it works, and has to ask the rates first
	paced bool  // it pauses because of its own rate
	key   int64 // lowest offset when it went into the heap
	timer *time.Timer
	// ours is the token of a lease that we hold and a drain gives back; 0 without one, and while it is given back already or a
	// suspect's that has not had its run.
	ours lease.Token

	recordState
}

// recordState is the state of the record that is being worked on.
type recordState struct {
	stage       stage
	lease       lease.Lease
	work        item
	gone        bool // work has no record: the Source lost it
	err         error
	more        bool // after a give-up: the ledger has more, at after
	after       int64
	due         time.Time // of the next attempt
	began       time.Time
	suspect     bool // its lease was held by a process that died: it runs while no other suspect does, and its attempt is counted in advance
	counted     bool // this attempt was counted before it began
	released    bool // its lease was given back until it is due
	errorsInRow int  // consecutive errors of the ledger or of the dead letters' receiver
	unsure      bool // the last call failed but may have been applied
	contested   bool // another process took the released lease, and may be the partition's next owner

	foreign      lease.Token // another process's lease that blocks the domain; 0: none
	foreignSince time.Time
}

// low is the lowest offset of the domain that may not be done.
func (dom *domain) low() (offset int64, ok bool) {
	if len(dom.queue) > 0 {
		offset, ok = dom.queue[0].Offset, true
	}
	if dom.open && (!ok || dom.at < offset) {
		offset, ok = dom.at, true
	}
	if dom.behind && (!ok || dom.mark < offset) {
		offset, ok = dom.mark, true
	}
	return offset, ok
}

// find returns the index of offset in the queue, or -1.
func (dom *domain) find(offset int64) int {
	for i := range dom.queue {
		if dom.queue[i].Offset == offset {
			return i
		}
	}
	return -1
}

// dead reports whether the queue's first record was given up before a restart.
func (dom *domain) dead() bool { return len(dom.queue) > 0 && dom.queue[0].dead }

// early reports whether the queue's first record is below the ledger's position: it was done or given up before a restart.
func (dom *domain) early() bool {
	return dom.open && len(dom.queue) > 0 && dom.queue[0].Offset < dom.at && !dom.queue[0].dead && !dom.queue[0].waits
}

// drop takes offset out of the queue, if it is there.
func (dom *domain) drop(offset int64) (dropped bool) {
	i := dom.find(offset)
	switch {
	case i < 0:
		return false
	case i == 0:
		dom.queue[0] = item{}
		dom.queue = dom.queue[1:]
	default:
		dom.queue = slices.Delete(dom.queue, i, i+1)
	}
	return true
}

// empty reports whether the domain may be forgotten.
func (dom *domain) empty() bool {
	return dom.state == idle && len(dom.queue) == 0 && !dom.open && !dom.behind && dom.stage == fresh
}

// byAge is a heap of runnable domains, the lowest offset first.
type byAge []*domain

var _ heap.Interface = (*byAge)(nil)

func (h *byAge) Len() int           { return len(*h) }
func (h *byAge) Less(i, j int) bool { return (*h)[i].key < (*h)[j].key }
func (h *byAge) Swap(i, j int)      { (*h)[i], (*h)[j] = (*h)[j], (*h)[i] }
func (h *byAge) Push(x any)         { *h = append(*h, x.(*domain)) }

func (h *byAge) Pop() any {
	last := len(*h) - 1
	dom := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return dom
}

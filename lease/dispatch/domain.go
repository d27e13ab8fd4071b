// SPDX-License-Identifier: Apache-2.0

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
	since     time.Time // when it was fetched
	dead      bool      // the ledger gave it up before a restart: only its dead letter remains
	cause     error     // why a dead item never reached the ledger; nil otherwise
	inBacklog bool      // the ledger has it in its backlog
}

// runState says whether a domain can run. Only a working domain is accessed without the lock, by the one goroutine that works
// on it.
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
	fenced               // another process has taken the lease: ask the source which process owns the partition
)

// deferral remembers records of a domain, or of an owner, that were read and dropped for want of room.
type deferral struct {
	deferred bool // the records from deferredFrom on have to be read again
	// deferredFrom is above the records of the queue, and that of a domain below that of its owner.
	deferredFrom int64
}

// lacks reports whether the record at offset has to be read again.
func (l *deferral) lacks(offset int64) bool { return l.deferred && offset >= l.deferredFrom }

// domain is a domain with work in it. Guarded by Dispatcher.mu; while it works, recordState belongs to the goroutine that works
// on it.
type domain struct {
	name  string
	owner *owner
	queue []item // fetched and not done, offsets rising
	// inLedger: the ledger has work of this domain at ledgerOffset, in the queue or not: a lease, the head of its backlog, or a
	// record that was just given up. The floor must not pass it.
	inLedger     bool
	ledgerOffset int64

	deferral
	watched bool // it is in Dispatcher.watched

	state     runState
	needsRate bool  // it works, and has to ask the rates first
	paced     bool  // it pauses because of its own rate
	priority  int64 // its lowest offset when it went into the heap
	timer     *time.Timer
	// heldToken is the token of a lease that a drain releases. 0: there is none, it is released already, or it is a suspect's
	// that has not had its trial.
	heldToken lease.Token

	recordState
}

// recordState is the state of the record in work.
type recordState struct {
	stage   stage
	lease   lease.Lease
	current item
	gone    bool // current has no record: the Source lost it
	err     error
	hasNext bool // after a give-up: the ledger has more, at next
	next    int64
	due     time.Time // of the next attempt
	began   time.Time
	// suspect: its lease was held by a process that died. It runs while no other suspect does, and its attempt is counted in
	// advance.
	suspect      bool
	counted      bool // this attempt was counted before it began
	released     bool // its lease was released until it is due
	errorsInRow  int  // consecutive errors of the ledger or of DeadLetter
	maybeApplied bool // the last call failed but may have been applied
	takenByOther bool // another process took the released lease, and may be the partition's next owner

	foreign      lease.Token // another process's lease that blocks the domain; 0: none
	foreignSince time.Time
}

// low returns the lowest offset of the domain that may not be done.
func (dom *domain) low() (offset int64, ok bool) {
	if len(dom.queue) > 0 {
		offset, ok = dom.queue[0].Offset, true
	}
	if dom.inLedger && (!ok || dom.ledgerOffset < offset) {
		offset, ok = dom.ledgerOffset, true
	}
	if dom.deferred && (!ok || dom.deferredFrom < offset) {
		offset, ok = dom.deferredFrom, true
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

// belowLedger reports whether the queue's first record is below the ledger's position: it was done or given up before a restart.
func (dom *domain) belowLedger() bool {
	if !dom.inLedger || len(dom.queue) == 0 {
		return false
	}
	first := &dom.queue[0]
	return first.Offset < dom.ledgerOffset && !first.dead && !first.inBacklog
}

// drop removes offset from the queue, if it is there.
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
	return dom.state == idle && len(dom.queue) == 0 && !dom.inLedger && !dom.deferred && dom.stage == fresh
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

// SPDX-License-Identifier: Apache-2.0

// The answers of a ledger, spelled as in the contract.

package lease

import "strconv"

// Status is the answer of a call. Zero is no answer: it comes with an error.
type Status uint8

// TryAcquire, Offer and AcquireNext answer with one of the first seven, Succeed with one of the next two, Fail and GiveUp
// with one of the last three.
const (
	// Acquired: the caller holds the domain's lease on this offset.
	Acquired Status = iota + 1
	// Enqueued: the offset waits in the backlog, put there now or earlier.
	Enqueued
	// AlreadyAcquired: this offset is leased already.
	AlreadyAcquired
	// AlreadyProcessed: the offset succeeded, or lies below the floor.
	AlreadyProcessed
	// AlreadyFailed: the offset was given up.
	AlreadyFailed
	// NothingToDo (AcquireNext only): no lease and no backlog.
	NothingToDo
	// Busy (AcquireNext only): the domain has a lease; its token is not returned.
	Busy

	// NoBacklog: the offset is processed, and nothing waits.
	NoBacklog
	// NextHint: the offset is processed, and Completion.Next waits at the backlog's head, where it stays.
	NextHint

	// RetryScheduled: the lease stays, and one more retry is counted.
	RetryScheduled
	// GiveUpNoBacklog: the offset is failed for good, and nothing waits.
	GiveUpNoBacklog
	// GiveUpNextHint: the offset is failed for good, and Failure.Next waits at the backlog's head, where it stays.
	GiveUpNextHint
)

// String returns the contract's spelling, as in ALREADY_ACQUIRED. It does not allocate for a defined status.
func (s Status) String() string {
	contract, _ := s.names()
	return contract
}

// names returns the contract's spelling and the code that stands in logs and metrics.
func (s Status) names() (contract, code string) {
	switch s {
	case Acquired:
		return "ACQUIRED", "acquired"
	case Enqueued:
		return "ENQUEUED", "enqueued"
	case AlreadyAcquired:
		return "ALREADY_ACQUIRED", "already_acquired"
	case AlreadyProcessed:
		return "ALREADY_PROCESSED", "already_processed"
	case AlreadyFailed:
		return "ALREADY_FAILED", "already_failed"
	case NothingToDo:
		return "NOTHING_TO_DO", "nothing_to_do"
	case Busy:
		return "BUSY", "busy"
	case NoBacklog:
		return "NO_BACKLOG", "no_backlog"
	case NextHint:
		return "NEXT_HINT", "next_hint"
	case RetryScheduled:
		return "RETRY_SCHEDULED", "retry_scheduled"
	case GiveUpNoBacklog:
		return "GIVE_UP_NO_BACKLOG", "give_up_no_backlog"
	case GiveUpNextHint:
		return "GIVE_UP_NEXT_HINT", "give_up_next_hint"
	}
	return "UNDEFINED_" + strconv.Itoa(int(s)), "undefined"
}

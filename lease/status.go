package lease

// This file holds the statuses that a ledger returns, spelled as in the contract.

import "strconv"

// AcquireStatus is the result of TryAcquire, Offer and AcquireNext. Zero is not a status.
type AcquireStatus uint8

const (
	// Acquired: the caller holds the domain's lease on this offset.
	Acquired AcquireStatus = iota + 1
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
)

// String returns the contract's spelling, as in ALREADY_ACQUIRED. It does not allocate for a defined status.
func (s AcquireStatus) String() string {
	switch s {
	case Acquired:
		return "ACQUIRED"
	case Enqueued:
		return "ENQUEUED"
	case AlreadyAcquired:
		return "ALREADY_ACQUIRED"
	case AlreadyProcessed:
		return "ALREADY_PROCESSED"
	case AlreadyFailed:
		return "ALREADY_FAILED"
	case NothingToDo:
		return "NOTHING_TO_DO"
	case Busy:
		return "BUSY"
	}
	return undefined(uint8(s))
}

// CompletionStatus is the result of Succeed. Zero is not a status.
type CompletionStatus uint8

const (
	// NoBacklog: the offset is processed, and nothing waits.
	NoBacklog CompletionStatus = iota + 1
	// NextHint: the offset is processed, and Completion.Next waits at the backlog's head, where it stays.
	NextHint
)

// String returns the contract's spelling. It does not allocate for a defined status.
func (s CompletionStatus) String() string {
	switch s {
	case NoBacklog:
		return "NO_BACKLOG"
	case NextHint:
		return "NEXT_HINT"
	}
	return undefined(uint8(s))
}

// FailureStatus is the result of Fail and GiveUp. Zero is not a status.
type FailureStatus uint8

const (
	// RetryScheduled: the lease stays, and one more retry is counted.
	RetryScheduled FailureStatus = iota + 1
	// GiveUpNoBacklog: the offset is failed for good, and nothing waits.
	GiveUpNoBacklog
	// GiveUpNextHint: the offset is failed for good, and Failure.Next waits at the backlog's head, where it stays.
	GiveUpNextHint
)

// String returns the contract's spelling. It does not allocate for a defined status.
func (s FailureStatus) String() string {
	switch s {
	case RetryScheduled:
		return "RETRY_SCHEDULED"
	case GiveUpNoBacklog:
		return "GIVE_UP_NO_BACKLOG"
	case GiveUpNextHint:
		return "GIVE_UP_NEXT_HINT"
	}
	return undefined(uint8(s))
}

// Outcome is how a completed offset ended, as far as the ledger remembers.
type Outcome uint8

const (
	// OutcomeUnknown: this token did not complete the domain's last offset, or a Compact has forgotten that it did.
	OutcomeUnknown Outcome = iota
	// OutcomeProcessed: a Succeed with this token took effect.
	OutcomeProcessed
	// OutcomeFailed: a Fail or GiveUp with this token gave the offset up.
	OutcomeFailed
)

// String returns UNKNOWN, PROCESSED or FAILED. It does not allocate for a defined outcome.
func (o Outcome) String() string {
	switch o {
	case OutcomeUnknown:
		return "UNKNOWN"
	case OutcomeProcessed:
		return "PROCESSED"
	case OutcomeFailed:
		return "FAILED"
	}
	return undefined(uint8(o))
}

func undefined(n uint8) string { return "UNDEFINED_" + strconv.Itoa(int(n)) }

package lease

// This file holds the answers a ledger gives, spelled as the contract spells them.

import "strconv"

// AcquireStatus answers TryAcquire, Offer and AcquireNext. Zero is no answer.
type AcquireStatus uint8

const (
	// Acquired: the caller holds the domain's lease on this offset.
	Acquired AcquireStatus = iota + 1
	// Enqueued: the offset waits in the backlog, put there now or earlier.
	Enqueued
	// AlreadyAcquired: the domain's lease is on this very offset.
	AlreadyAcquired
	// AlreadyProcessed: the offset succeeded, or lies below the floor.
	AlreadyProcessed
	// AlreadyFailed: the offset was given up.
	AlreadyFailed
	// NothingToDo (AcquireNext only): no lease and no backlog.
	NothingToDo
	// Busy (AcquireNext only): a lease is held; its token is not handed out.
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

// CompletionStatus answers Succeed. Zero is no answer.
type CompletionStatus uint8

const (
	// NoBacklog: done, and nothing waits.
	NoBacklog CompletionStatus = iota + 1
	// NextHint: done, and Completion.Next waits at the backlog's head, where it still is.
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

// FailureStatus answers Fail. Zero is no answer.
type FailureStatus uint8

const (
	// RetryScheduled: the lease stays, with one more retry counted.
	RetryScheduled FailureStatus = iota + 1
	// GiveUpNoBacklog: the offset is failed for good, and nothing waits.
	GiveUpNoBacklog
	// GiveUpNextHint: the offset is failed for good, and Failure.Next waits at the backlog's head, where it still is.
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

// Outcome is how a completed offset ended, as far as the ledger still knows.
type Outcome uint8

const (
	// OutcomeUnknown: this token did not complete the domain last, or a Compact has forgotten that it did.
	OutcomeUnknown Outcome = iota
	// OutcomeProcessed: Succeed was carried out with this token.
	OutcomeProcessed
	// OutcomeFailed: Fail with this token gave the offset up.
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

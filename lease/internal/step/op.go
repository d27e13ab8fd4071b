// SPDX-License-Identifier: Apache-2.0

package step

// Kind is a call that is one step of a domain.
type Kind uint8

// The calls of a ledger that decide something. GiveUp is a Fail. Zero is no call.
const (
	TryAcquire Kind = iota + 1
	Offer
	AcquireNext
	Succeed
	Fail
	Reclaim
	Release
	Compact
)

// String returns the call in snake_case, as in try_acquire. It does not allocate for a defined kind.
func (k Kind) String() string {
	switch k {
	case TryAcquire:
		return "try_acquire"
	case Offer:
		return "offer"
	case AcquireNext:
		return "acquire_next"
	case Succeed:
		return "succeed"
	case Fail:
		return "fail"
	case Reclaim:
		return "reclaim"
	case Release:
		return "release"
	case Compact:
		return "compact"
	}
	return "undefined"
}

// Grants reports whether the call can make a lease out of nothing, for which it needs Op.Now.
func (k Kind) Grants() bool { return k == TryAcquire || k == AcquireNext }

// Op is one call on one domain, with the engine's knowledge at that moment.
type Op struct {
	Kind   Kind
	Domain string
	Offset int64  // TryAcquire, Offer
	Token  uint64 // Succeed, Fail, Reclaim, Release: the token shown

	Fresh      uint64 // a token greater than any that this domain had, so never 0; TryAcquire, AcquireNext, Reclaim
	Now        int64  // Unix nanoseconds; TryAcquire, AcquireNext
	Floor      int64  // the ledger's floor
	MaxRetries int    // Fail calls that lead to a retry; negative: none
	MaxBacklog int    // 0: no bound

	Spares *Spares // nil: allocate
}

// Status is the answer to a call, numbered as lease.Status is.
type Status uint8

// The answers, as package lease describes them. Zero is no answer.
const (
	Acquired         Status = 1
	Enqueued         Status = 2
	AlreadyAcquired  Status = 3
	AlreadyProcessed Status = 4
	AlreadyFailed    Status = 5
	NothingToDo      Status = 6
	Busy             Status = 7
	NoBacklog        Status = 8
	NextHint         Status = 9
	RetryScheduled   Status = 10
	GiveUpNoBacklog  Status = 11
	GiveUpNextHint   Status = 12
)

// Refusal is why a call was not carried out.
type Refusal uint8

// The refusals. Zero: the call was carried out.
const (
	OutOfOrder   Refusal = iota + 1 // another offset, Result.Next, is at the head of the backlog
	BacklogFull                     // Op.MaxBacklog offsets wait
	NotTheHolder                    // Op.Token does not hold the lease, which is on Result.Offset
	NoLease                         // if Result.Status is set, Op.Token completed Result.Offset with that status
	Undefined                       // the engine's mistake: an undefined Kind, or no Fresh token (L9)
)

// Grant is a lease of a domain.
type Grant struct {
	Offset     int64
	Token      uint64 // never 0
	AcquiredAt int64  // Unix nanoseconds
	RetryCount int32
	Released   bool
}

// Result is the answer to an Op.
type Result struct {
	Status     Status // 0 for Reclaim, Release and Compact
	Refused    Refusal
	BelowFloor bool
	Changed    bool // the state has changed; never with a refusal
	// Grant is the lease that was granted, found, reclaimed or released; for Succeed and Fail the lease that they acted on.
	// Token 0: none.
	Grant
	Next int64 // the backlog's head, with a hint and with OutOfOrder
}

// Snapshot is a copy of a State for Inspect.
type Snapshot struct {
	Grant     // Token 0: idle
	Backlog   []int64
	Processed int // offsets at or above the floor
	Failed    int
	Floor     int64
}

package lease

// This file is the contract as a Go interface, with the values that pass through it.

import (
	"context"
	"iter"
	"time"
)

// Token is a fence. It is never 0, no two leases of a ledger share one, and within a domain a later lease always has
// a greater one: a store downstream that remembers the greatest token it saw can refuse a smaller one.
type Token uint64

// Lease is the right to work on one offset of one domain, until Succeed or Fail ends it, Reclaim hands it on or Release gives it back.
type Lease struct {
	Domain     string
	Offset     int64
	Token      Token
	AcquiredAt time.Time // when this offset was first acquired; UTC wall time, no monotonic reading. Retries keep it
	RetryCount int       // Fail calls so far on this offset
	Released   bool      // nobody holds it: Release gave it back, and Token is what Reclaim asks for
}

// Acquisition is what TryAcquire and AcquireNext answer.
type Acquisition struct {
	Status AcquireStatus
	Lease  Lease // set for Acquired and AlreadyAcquired
	// BelowFloor, with AlreadyProcessed: the offset lies below the floor. Compact has forgotten how it ended.
	BelowFloor bool
}

// Completion is what Succeed answers.
type Completion struct {
	Status CompletionStatus
	Next   int64 // the backlog's head, set for NextHint
}

// Failure is what Fail answers.
type Failure struct {
	Status     FailureStatus
	RetryCount int   // Fail calls on this offset that led to a retry, this one included for RetryScheduled
	Next       int64 // the backlog's head, set for GiveUpNextHint
}

// Head is an idle domain with work waiting.
type Head struct {
	Domain string
	Offset int64 // the backlog's head
}

// View is a copy of what a ledger holds on one domain.
type View struct {
	Domain    string
	Lease     *Lease  // nil: idle
	Backlog   []int64 // in order of arrival
	Processed int     // offsets at or above the floor that succeeded
	Failed    int     // offsets at or above the floor that were given up
	Floor     int64   // the ledger's; math.MinInt64 before the first Compact
}

// Ledger grants at most one lease per domain, first come first served, and remembers what is done. A ledger is one
// offset space: a partition, an outbox table. Offsets may be any int64; a domain is any string but "", of at
// most 65,535 bytes in a Memory.
//
// Every method is safe for concurrent use, checks ctx on entry and then carries the call out whole: it returns ctx's
// error only with the ledger unchanged. Whatever the error, the ledger is unchanged. Nothing here owns time: no
// lease expires, and no call waits for another caller's work.
type Ledger interface {
	// TryAcquire asks for the lease on offset. In an idle domain it is granted when offset is at the head of the
	// backlog or the backlog is empty, and refused with *BacklogOrderingError otherwise. In a busy domain offset joins the
	// backlog, once, or is refused with *BacklogFullError.
	TryAcquire(ctx context.Context, domain string, offset int64) (Acquisition, error)
	// Succeed ends the lease: its offset is processed. It hands nothing off.
	// Errors: *LeaseNotFoundError, *TokenMismatchError.
	Succeed(ctx context.Context, domain string, token Token) (Completion, error)
	// Fail counts a retry and keeps the lease, or, when the lease has MaxRetries retries behind it, ends it: its
	// offset is failed for good. Errors: *LeaseNotFoundError, *TokenMismatchError.
	Fail(ctx context.Context, domain string, token Token) (Failure, error)
	// GiveUp is the Fail of a lease that has its retries behind it, however many it has: its offset is failed for good.
	// Errors: *LeaseNotFoundError, *TokenMismatchError.
	GiveUp(ctx context.Context, domain string, token Token) (Failure, error)

	// Offer reports the arrival of offset and never grants: it answers Enqueued (now or earlier) or one of the Already
	// statuses, whether the domain is busy or idle. Error: *BacklogFullError.
	Offer(ctx context.Context, domain string, offset int64) (AcquireStatus, error)
	// AcquireNext takes the head of the backlog: Acquired, NothingToDo or Busy.
	AcquireNext(ctx context.Context, domain string) (Acquisition, error)
	// Reclaim gives the lease that held names a new token and returns it; offset, AcquiredAt and RetryCount stay. The
	// former holder is fenced out; a lease that was released has an owner again. Of several callers that show the same token one wins, the others get
	// *TokenMismatchError. Whether the holder is dead is for the caller to know.
	Reclaim(ctx context.Context, domain string, held Token) (Lease, error)
	// Release gives the lease back unfinished: it stays, without an owner, and its domain stays busy until somebody has reclaimed
	// and finished it. Offset, Token, AcquiredAt and RetryCount are what they were, and no failure is counted. From then on
	// Succeed and Fail get *TokenMismatchError, whoever calls; Release again with the same token changes nothing.
	// Errors: *LeaseNotFoundError, *TokenMismatchError.
	Release(ctx context.Context, domain string, token Token) error
	// Compact raises the ledger's floor: in every domain an offset below it that is neither leased nor waiting counts
	// as processed from now on, and the memory of such offsets is given back. Error: *FloorError for a floor that
	// goes down.
	Compact(ctx context.Context, floor int64) error
	// Ready yields the idle domains that have a backlog, in no particular order. Each was so at some moment of the
	// iteration, and a domain that is so throughout is yielded once. No lock is held while the body runs. After an
	// error, which comes with a zero Head, nothing follows.
	Ready(ctx context.Context) iter.Seq2[Head, error]
	// Held yields the leases, under the same terms as Ready.
	Held(ctx context.Context) iter.Seq2[Lease, error]
	// Inspect returns a copy of what is known of domain; of one never seen that is a View with Domain and Floor only.
	Inspect(ctx context.Context, domain string) (View, error)
}

// SPDX-License-Identifier: Apache-2.0

// The contract as a Go interface, with the values that pass through it.

package lease

import (
	"context"
	"iter"
	"time"
)

// Token is a fencing token. It is never 0, no two leases of a ledger share one, and within a domain a later lease always
// has a greater one: a downstream store that remembers the greatest token it has seen can reject a smaller one.
type Token uint64

// Lease is the right to work on one offset of one domain. Succeed or Fail ends it, Reclaim gives it to another holder,
// Release gives it back.
type Lease struct {
	Domain     string
	Offset     int64
	Token      Token
	AcquiredAt time.Time // when this offset was first acquired; UTC wall time, no monotonic reading. Retries keep it
	RetryCount int       // Fail calls so far on this offset
	Released   bool      // the lease has no holder: Release gave it back, and Reclaim takes it with Token
}

// Acquisition is the answer of TryAcquire and AcquireNext.
type Acquisition struct {
	Status Status // Acquired to Busy
	Lease  Lease  // set for Acquired and AlreadyAcquired
	// BelowFloor, with AlreadyProcessed: the offset lies below the floor, and Compact has forgotten how it ended.
	BelowFloor bool
}

// Completion is the answer of Succeed.
type Completion struct {
	Status Status // NoBacklog or NextHint
	Next   int64  // the backlog's head, set for NextHint
}

// Failure is the answer of Fail and GiveUp.
type Failure struct {
	Status     Status // RetryScheduled, GiveUpNoBacklog or GiveUpNextHint
	RetryCount int    // Fail calls on this offset that led to a retry, this one included for RetryScheduled
	Next       int64  // the backlog's head, set for GiveUpNextHint
}

// Head is an idle domain with work waiting.
type Head struct {
	Domain string
	Offset int64 // the backlog's head
}

// View is a copy of a ledger's state of one domain.
type View struct {
	Domain    string
	Lease     *Lease  // nil: idle
	Backlog   []int64 // in order of arrival
	Processed int     // offsets at or above the floor that succeeded
	Failed    int     // offsets at or above the floor that were given up
	Floor     int64   // the ledger's; math.MinInt64 before the first Compact
}

// Ledger grants at most one lease per domain, first come, first served, and remembers which offsets are done. A ledger
// covers one offset space: a partition, an outbox table. An offset may be any int64; a domain is any string of 1 to
// 65,535 bytes.
//
// Every method is safe for concurrent use and checks ctx on entry. It then completes: it returns ctx's error only with the
// ledger unchanged. Every error means that the ledger is unchanged, with one exception: after a durable.ErrAmbiguous the
// change may have been made. A ledger has no timers: no lease expires, and no call waits for another caller's work, but for
// the transaction of a leasepg.SucceedTx. Beside the errors named below every call may return an *InvalidError, for a nil ctx
// or a domain of another length, and the errors of its engine.
type Ledger interface {
	// TryAcquire requests the lease on offset. One that is done or leased gets an Already status. In an idle domain it is
	// granted if offset is at the head of the backlog or the backlog is empty, and rejected with *BacklogOrderingError
	// otherwise. In a busy domain offset joins the backlog, once, or is rejected with *BacklogFullError.
	TryAcquire(ctx context.Context, domain string, offset int64) (Acquisition, error)
	// Succeed ends the lease: its offset is processed. It does not lease the next offset. Errors: *LeaseNotFoundError,
	// *TokenMismatchError.
	Succeed(ctx context.Context, domain string, token Token) (Completion, error)
	// Fail counts a retry and keeps the lease. If the lease has had MaxRetries retries, Fail ends it: the offset is
	// failed for good. Errors: *LeaseNotFoundError, *TokenMismatchError.
	Fail(ctx context.Context, domain string, token Token) (Failure, error)
	// GiveUp ends the lease whatever its retry count: the offset is failed for good. Errors: *LeaseNotFoundError,
	// *TokenMismatchError.
	GiveUp(ctx context.Context, domain string, token Token) (Failure, error)

	// Offer reports the arrival of offset and never grants: it returns Enqueued (now or earlier) or one of the Already
	// statuses, whether the domain is busy or idle. Error: *BacklogFullError.
	Offer(ctx context.Context, domain string, offset int64) (Status, error)
	// AcquireNext leases the head of the backlog: Acquired, NothingToDo or Busy.
	AcquireNext(ctx context.Context, domain string) (Acquisition, error)
	// Reclaim replaces the token held by a new one and returns the lease; offset, AcquiredAt and RetryCount stay. The
	// former holder is fenced out; a released lease has a holder again. Of several callers with the same token one
	// succeeds, and the others get *TokenMismatchError. The caller decides whether the former holder is dead. Errors:
	// *LeaseNotFoundError, *TokenMismatchError.
	Reclaim(ctx context.Context, domain string, held Token) (Lease, error)
	// Release gives the lease back unfinished: it stays, without a holder, and its domain stays busy until the lease has
	// been reclaimed and finished. Offset, Token, AcquiredAt and RetryCount do not change, and no failure is counted.
	// Afterwards Succeed and Fail get *TokenMismatchError; Release with the same token changes nothing. Errors:
	// *LeaseNotFoundError, *TokenMismatchError.
	Release(ctx context.Context, domain string, token Token) error
	// Compact raises the ledger's floor: in every domain an offset below it that is neither leased nor waiting counts as
	// processed from now on, and its memory is freed. Error: ErrFloor for a floor below the current one.
	Compact(ctx context.Context, floor int64) error
	// Ready yields the idle domains that have a backlog, in no particular order. Each domain was in that state at some
	// moment of the iteration, and a domain in that state throughout is yielded once. No lock is held while the body
	// runs. An error comes with a zero Head and ends the iteration.
	Ready(ctx context.Context) iter.Seq2[Head, error]
	// Held yields the leases, on the same terms as Ready.
	Held(ctx context.Context) iter.Seq2[Lease, error]
	// Inspect returns a copy of domain's state; for a domain never seen, a View with Domain and Floor only.
	Inspect(ctx context.Context, domain string) (View, error)
}

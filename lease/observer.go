// SPDX-License-Identifier: Apache-2.0

// The events of a ledger and their observer.

package lease

import (
	"errors"

	"github.com/stopbank/stopbank/lease/internal/step"
)

// Event is one decision of a ledger: a call that was carried out or rejected. A call with an ended context or an invalid
// argument is no decision. Ready, Held and Inspect decide nothing.
type Event struct {
	// Op is the call: try_acquire, offer, acquire_next, succeed, fail (GiveUp as well), reclaim, release or compact.
	Op string
	// Result is the status in lower case, as in already_acquired; ok for a call without a status; or the kind of the error:
	// backlog_ordering, token_mismatch, lease_not_found, backlog_full, floor, invalid; error for one that is not of this package.
	// Op and Result fit a metric's labels: together they have about forty values.
	Result string
	Domain string // "" for compact
	// Offset is the requested one (try_acquire, offer), the leased one (acquire_next, succeed, fail, reclaim, release; 0 if
	// there is none, or after an error) or the floor (compact).
	Offset int64
	// Token is the lease's, the new one after acquired and reclaim. After an error it is the caller's.
	Token      Token
	RetryCount int // of the lease
	Err        error
}

// Observer receives a ledger's events. Observe runs in the caller's goroutine after the decision, with no lock held, so
// it may call the ledger; the caller waits for it. Events of one domain may arrive out of order. A panic in it is
// swallowed and changes nothing. It must be safe for concurrent use.
type Observer interface{ Observe(Event) }

// notify tells o what came of op. It allocates nothing.
func notify(o Observer, op step.Op, r step.Result, err error) {
	e := Event{
		Op: op.Kind.String(), Result: resultOf(r, err), Domain: op.Domain, Offset: op.Offset, Token: Token(r.Token),
		RetryCount: int(r.RetryCount), Err: err,
	}
	switch {
	case err != nil:
		e.Token = Token(op.Token)
	case op.Kind != step.TryAcquire && op.Kind != step.Offer:
		e.Offset = r.Offset
	}
	defer func() { _ = recover() }() // the decision stands, whatever its observer does
	o.Observe(e)
}

func resultOf(r step.Result, err error) string {
	if err == nil {
		if r.Status == 0 {
			return "ok"
		}
		_, code := Status(r.Status).names()
		return code
	}
	for _, kind := range [...]struct {
		err  error
		code string
	}{
		{ErrBacklogOrdering, "backlog_ordering"}, {ErrTokenMismatch, "token_mismatch"}, {ErrLeaseNotFound, "lease_not_found"},
		{ErrBacklogFull, "backlog_full"}, {ErrFloor, "floor"}, {ErrInvalid, "invalid"},
	} {
		if errors.Is(err, kind.err) {
			return kind.code
		}
	}
	return "error"
}

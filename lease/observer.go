package lease

// This file has the events of a ledger and their observer.

import (
	"errors"
	"log/slog"
)

// Event is one decision of a ledger: a call that reached the state machine, granted or rejected. A call with an ended
// context or an empty domain does not get there. Ready, Held and Inspect decide nothing.
type Event struct {
	Op     OpKind
	Domain string // empty for Compact
	// Offset is the requested one (TryAcquire, Offer), the leased one (AcquireNext, Succeed, Fail, Reclaim, Release) or
	// the floor (Compact).
	Offset int64
	// Token is the lease's, the new one after Acquired and Reclaim. After an error it is the caller's.
	Token      Token
	Acquire    AcquireStatus    // TryAcquire, Offer, AcquireNext
	Complete   CompletionStatus // Succeed
	Fail       FailureStatus    // Fail
	BelowFloor bool
	RetryCount int
	Next       int64 // with NextHint and GiveUpNextHint
	Err        error
}

// Result returns the outcome as one word: a status, such as ACQUIRED; OK for a call without a status; the kind of the
// error, such as TOKEN_MISMATCH; or ERROR for an error that is not of this package. There are about twenty, so it can be
// a metric's label. It does not allocate.
func (e Event) Result() string {
	switch {
	case e.Err != nil:
		return kindOf(e.Err)
	case e.Acquire != 0:
		return e.Acquire.String()
	case e.Complete != 0:
		return e.Complete.String()
	case e.Fail != 0:
		return e.Fail.String()
	}
	return "OK"
}

func kindOf(err error) string {
	for _, kind := range [...]struct {
		err  error
		name string
	}{
		{ErrBacklogOrdering, "BACKLOG_ORDERING"}, {ErrTokenMismatch, "TOKEN_MISMATCH"}, {ErrLeaseNotFound, "LEASE_NOT_FOUND"},
		{ErrBacklogFull, "BACKLOG_FULL"}, {ErrFloor, "FLOOR"}, {ErrInvalid, "INVALID"},
	} {
		if errors.Is(err, kind.err) {
			return kind.name
		}
	}
	return "ERROR"
}

// LogValue implements slog.LogValuer: one group with Result and the fields that are set, and always Offset.
func (e Event) LogValue() slog.Value {
	attrs := append(make([]slog.Attr, 0, 8), slog.String("op", e.Op.String()), slog.String("result", e.Result()))
	if e.Domain != "" {
		attrs = append(attrs, slog.String("domain", e.Domain))
	}
	attrs = append(attrs, slog.Int64("offset", e.Offset))
	if e.Token != 0 {
		attrs = append(attrs, slog.Uint64("token", uint64(e.Token)))
	}
	if e.RetryCount != 0 {
		attrs = append(attrs, slog.Int("retry_count", e.RetryCount))
	}
	if e.Complete == NextHint || e.Fail == GiveUpNextHint {
		attrs = append(attrs, slog.Int64("next", e.Next))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("err", e.Err.Error()))
	}
	return slog.GroupValue(attrs...)
}

// Observer receives a ledger's events. Observe runs in the caller's goroutine after the decision, with no lock held, so
// it may call the ledger; the caller waits for it. Events of one domain may arrive out of order. A panic in it is
// swallowed and changes nothing. It must be safe for concurrent use.
type Observer interface{ Observe(Event) }

// Report sends the outcome of op to o. An engine with an Observer calls it after each decision, holding no lock. A panic
// of o is swallowed. o must not be nil.
func Report(o Observer, op *Op, r *Result, err error) {
	e := Event{
		Op: op.Kind, Domain: op.Domain, Offset: op.Offset, Token: r.Token, RetryCount: int(r.RetryCount),
		Acquire: r.Acquire, Complete: r.Complete, Fail: r.Fail, BelowFloor: r.BelowFloor, Next: r.Next, Err: err,
	}
	switch {
	case err != nil:
		e.Token = op.Token
	case op.Kind != OpTryAcquire && op.Kind != OpOffer:
		e.Offset = r.Offset
	}
	notify(o, e)
}

func notify(o Observer, e Event) {
	defer func() { _ = recover() }() // the decision stands, whatever its observer does
	o.Observe(e)
}

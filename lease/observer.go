package lease

// This file is what a ledger tells those who watch it.

import (
	"errors"
	"log/slog"
)

// Event is one decision of a ledger: a call that reached the state machine, whether it was granted or refused. A
// call turned away at the door (a done context, an empty domain) is no decision. Ready, Held and Inspect decide nothing.
type Event struct {
	Op     OpKind
	Domain string // empty for Compact
	// Offset is the one asked for (TryAcquire, Offer), leased (AcquireNext, Succeed, Fail, Reclaim, Release) or, for Compact, the floor.
	Offset int64
	// Token is the lease's: the new one after Acquired and Reclaim. After an error it is the token shown.
	Token      Token
	Acquire    AcquireStatus    // TryAcquire, Offer, AcquireNext
	Complete   CompletionStatus // Succeed
	Fail       FailureStatus    // Fail
	BelowFloor bool
	RetryCount int
	Next       int64 // with NextHint and GiveUpNextHint
	Err        error
}

// Result is what came of the call, as one word: its status, such as ACQUIRED; OK for a call without one; or the kind of its error, such as
// TOKEN_MISMATCH, and ERROR for any that is not of this package. There are some twenty, so it can be a metric's label. It does not allocate.
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

// LogValue implements slog.LogValuer: one group with Result and the fields that are set, Offset always.
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

// Observer watches a ledger. Observe runs in the caller's goroutine after the decision, with no lock held, so it may
// call the ledger; what it spends, the caller waits for. Events of one domain may overtake each other on the way to it.
// A panic in it is swallowed and changes nothing. It must be safe for concurrent use.
type Observer interface{ Observe(Event) }

// Report tells o what came of op: what an engine with an Observer calls after each decision, holding no lock. A panic of o is
// swallowed. o must not be nil.
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

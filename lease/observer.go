package lease

// This file is what a ledger tells those who watch it.

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

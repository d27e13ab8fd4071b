package lease

// This file has the state machine's input and output: one call on one domain, and its result.

import "time"

// OpKind is a method of Ledger, as engines and Events name it.
type OpKind uint8

// The operations of a ledger. Zero is not an operation.
const (
	OpTryAcquire OpKind = iota + 1
	OpOffer
	OpAcquireNext
	OpSucceed
	OpFail
	OpReclaim
	OpRelease
	OpCompact
)

// String returns the method's name. It does not allocate for a defined kind.
func (k OpKind) String() string {
	switch k {
	case OpTryAcquire:
		return "TryAcquire"
	case OpOffer:
		return "Offer"
	case OpAcquireNext:
		return "AcquireNext"
	case OpSucceed:
		return "Succeed"
	case OpFail:
		return "Fail"
	case OpReclaim:
		return "Reclaim"
	case OpRelease:
		return "Release"
	case OpCompact:
		return "Compact"
	}
	return undefined(uint8(k))
}

// grants reports whether the operation can make a lease out of nothing, for which it needs Now.
func (k OpKind) grants() bool { return k == OpTryAcquire || k == OpAcquireNext }

// Op is one call on one domain, with the engine's knowledge at that moment.
type Op struct {
	Kind   OpKind
	Domain string
	Offset int64 // TryAcquire, Offer
	Token  Token // Succeed, Fail, Reclaim, Release: the token shown

	Fresh      Token // a token greater than any that this domain had, so never 0; TryAcquire, AcquireNext, Reclaim
	Now        int64 // Unix nanoseconds; TryAcquire, AcquireNext
	Floor      int64 // the ledger's floor
	MaxRetries int   // Fail calls that lead to a retry; -1 for GiveUp
	MaxBacklog int   // 0: no bound

	spares *spares // nil: allocate
}

// Result is the outcome of an Op. One of the three statuses is set, the operation's own; none for Reclaim, Release and
// Compact.
type Result struct {
	Acquire    AcquireStatus
	Complete   CompletionStatus
	Fail       FailureStatus
	BelowFloor bool
	// Changed: the state has changed. Never true with an error.
	Changed bool

	// The lease that was granted, found, reclaimed or released; for Succeed and Fail the lease that they acted on. Token 0: none.
	Released   bool
	RetryCount int32
	Offset     int64
	Token      Token
	AcquiredAt int64 // Unix nanoseconds
	// Next is the backlog's head, set with a hint.
	Next int64
}

// Lease returns the result's lease, the zero Lease if it has none.
func (r *Result) Lease(domain string) (l Lease) {
	r.lease(domain, &l)
	return l
}

func (r *Result) lease(domain string, l *Lease) {
	if r.Token != 0 {
		l.Domain, l.Offset, l.Token, l.RetryCount, l.Released = domain, r.Offset, r.Token, int(r.RetryCount), r.Released
		l.AcquiredAt = time.Unix(0, r.AcquiredAt).UTC()
	}
}

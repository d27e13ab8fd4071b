package dispatch

// This file is what a dispatcher tells those who watch it.

import (
	"log/slog"
	"strconv"
	"time"

	"github.com/stopbank/stopbank/lease"
)

// Kind says what an Event is about. Zero is none.
type Kind uint8

const (
	// Started: the handler is about to be called.
	Started Kind = iota + 1
	// Succeeded: the handler returned nil, and the ledger knows. Took is how long the handler and the ledger took.
	Succeeded
	// Retrying: the handler failed with Err and will be called again after Wait.
	Retrying
	// Postponed: the handler asked to be called again after Wait, with Later.
	Postponed
	// GaveUp: the handler failed with Err for the last time. ErrDied says that its process did.
	GaveUp
	// DeadLettered: the receiver of dead letters has accepted the record.
	DeadLettered
	// DeadLetterFailed: it has not, with Err, and is asked again after Wait.
	DeadLetterFailed
	// Skipped: a record that was fetched is done already.
	Skipped
	// Reclaimed: a lease was taken from a holder who is gone.
	Reclaimed
	// Foreign: somebody else holds a lease, and took it after the partition had become ours.
	Foreign
	// Fenced: somebody else has taken the lease. The domain is left alone from now on; Run should be ended, because the
	// partition has a new owner.
	Fenced
	// Refused: the Concurrency refused, with Err. Told once for each time that a domain has to wait.
	Refused
	// RateFailed: Rate or RateOf panicked, with Err. The attempt does not begin; they are asked again after Wait.
	RateFailed
	// OwnerFailed: Owner panicked, with Err. The domain counts as one of the owner "".
	OwnerFailed
	// LedgerError: the ledger refused with Err something that it should not refuse. It is tried again after Wait.
	LedgerError
	// TakeFailed: the partition could not be taken, because of Err; tried again after Wait.
	TakeFailed
	// FetchFailed: the Source could not read from Offset, because of Err; tried again after Wait.
	FetchFailed
	// CommitFailed: the Source did not accept the floor Offset, because of Err.
	CommitFailed
	// Committed: the Source accepted the floor Offset.
	Committed
	// Paused: fetching stops, because Count records are fetched and not done.
	Paused
	// Resumed: fetching goes on.
	Resumed
	// Taken: the partition was taken, to be read from Offset on.
	Taken
	// Drained: Run is about to return. Offset is the floor, Count the abandoned, Err why the floor could not be committed: a
	// *LostError when the partition is lost.
	Drained
)

// String returns the constant's name. It does not allocate for a defined kind.
func (k Kind) String() string {
	switch k {
	case Started:
		return "Started"
	case Succeeded:
		return "Succeeded"
	case Retrying:
		return "Retrying"
	case Postponed:
		return "Postponed"
	case GaveUp:
		return "GaveUp"
	case DeadLettered:
		return "DeadLettered"
	case DeadLetterFailed:
		return "DeadLetterFailed"
	case Skipped:
		return "Skipped"
	case Reclaimed:
		return "Reclaimed"
	case Foreign:
		return "Foreign"
	case Fenced:
		return "Fenced"
	case Refused:
		return "Refused"
	case RateFailed:
		return "RateFailed"
	case OwnerFailed:
		return "OwnerFailed"
	case LedgerError:
		return "LedgerError"
	case TakeFailed:
		return "TakeFailed"
	case FetchFailed:
		return "FetchFailed"
	case CommitFailed:
		return "CommitFailed"
	case Committed:
		return "Committed"
	case Paused:
		return "Paused"
	case Resumed:
		return "Resumed"
	case Taken:
		return "Taken"
	case Drained:
		return "Drained"
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// Event is something that happened.
type Event struct {
	Kind       Kind
	Name       string // the Config's
	Domain     string
	Offset     int64
	Token      lease.Token
	RetryCount int
	Count      int
	Err        error // a *PanicError carries its stack
	Wait       time.Duration
	Took       time.Duration
}

// LogValue implements slog.LogValuer: one group with the fields that are set, Offset always.
func (e Event) LogValue() slog.Value {
	return slog.GroupValue(append([]slog.Attr{slog.String("kind", e.Kind.String())}, e.attrs()...)...)
}

// attrs are the fields that are set but for Kind, and Offset.
func (e Event) attrs() []slog.Attr {
	attrs := make([]slog.Attr, 0, 12)
	if e.Name != "" {
		attrs = append(attrs, slog.String("name", e.Name))
	}
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
	if e.Count != 0 {
		attrs = append(attrs, slog.Int("count", e.Count))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("err", e.Err.Error()))
	}
	if e.Wait != 0 {
		attrs = append(attrs, slog.Duration("wait", e.Wait))
	}
	if e.Took != 0 {
		attrs = append(attrs, slog.Duration("took", e.Took))
	}
	return attrs
}

// Observer watches a dispatcher. Observe runs after what it tells of, in the goroutine that did it and with no lock held; what it
// spends, the work waits for. A panic in it is swallowed and counted. It must be safe for concurrent use and must not call
// runtime.Goexit.
type Observer interface{ Observe(Event) }

func (d *Dispatcher) observe(e Event) {
	if d.cfg.Observer == nil {
		return
	}
	defer func() {
		if recover() != nil {
			d.tally(&d.count.panics)
		}
	}()
	e.Name = d.cfg.Name
	d.cfg.Observer.Observe(e)
}

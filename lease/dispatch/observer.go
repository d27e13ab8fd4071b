package dispatch

// This file has the events of a dispatcher and their observer.

import (
	"log/slog"
	"strconv"
	"time"

	"github.com/stopbank/stopbank/lease"
)

// Kind is the kind of an Event. Zero is not a kind.
type Kind uint8

const (
	// Started: the handler is about to be called.
	Started Kind = iota + 1
	// Succeeded: the handler returned nil, and the ledger has recorded it. Took is the time of handler and ledger.
	Succeeded
	// Retrying: the handler failed with Err and will be called again after Wait.
	Retrying
	// Postponed: the handler asked to be called again after Wait, with Later.
	Postponed
	// GaveUp: the handler failed with Err for the last time. ErrDied: its process died.
	GaveUp
	// DeadLettered: Config.DeadLetter has accepted the record.
	DeadLettered
	// DeadLetterFailed: Config.DeadLetter failed with Err and is called again after Wait.
	DeadLetterFailed
	// Skipped: a record that was fetched is done already.
	Skipped
	// Reclaimed: the lease of a former holder was reclaimed.
	Reclaimed
	// Foreign: another process took a lease after this one had taken the partition. It has Grace; then the Source is asked
	// whose the partition is.
	Foreign
	// Fenced: another process has reclaimed the lease. The Source is asked whose the partition is: if it is still this
	// Run's, the domain goes on, and if not, Run ends with a *LostError.
	Fenced
	// Rejected: Concurrency rejected an attempt with Err. Sent once for each time that a domain has to wait.
	Rejected
	// RateFailed: Rate or RateOf panicked, with Err. The attempt does not begin; they are asked again after Wait.
	RateFailed
	// OwnerFailed: Owner panicked, with Err. The domain belongs to the owner "".
	OwnerFailed
	// LedgerError: a call of the ledger failed unexpectedly, with Err. It is retried after Wait.
	LedgerError
	// TakeFailed: the partition could not be taken, because of Err; retried after Wait.
	TakeFailed
	// FetchFailed: the Source could not read from Offset, because of Err; retried after Wait.
	FetchFailed
	// CommitFailed: the Source did not accept the floor Offset, because of Err.
	CommitFailed
	// Committed: the Source accepted the floor Offset.
	Committed
	// Paused: fetching stops, because Count records are buffered.
	Paused
	// Resumed: fetching resumes.
	Resumed
	// Taken: the partition was taken, to be read from Offset on.
	Taken
	// Drained: Run is about to return. Offset is the floor, Count the abandoned records, Err the reason why the floor
	// could not be committed: a *LostError when the partition is lost.
	Drained
	// Stalled: records wait, or the partition cannot be taken, and for AttemptTimeout or more nothing has ended. Err is a
	// *StallError, Offset the floor, Count the records buffered. Sent once in AttemptTimeout while it lasts.
	Stalled
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
	case Rejected:
		return "Rejected"
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
	case Stalled:
		return "Stalled"
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// Event is one event of a dispatcher. Kind says which fields are set.
type Event struct {
	Kind       Kind
	Name       string // Config.Name
	Domain     string
	Offset     int64
	Token      lease.Token
	RetryCount int
	Count      int
	Err        error // a *PanicError carries its stack
	Wait       time.Duration
	Took       time.Duration
}

// LogValue implements slog.LogValuer: one group with the fields that are set, and always Offset.
func (e Event) LogValue() slog.Value {
	return slog.GroupValue(append([]slog.Attr{slog.String("kind", string(e.Kind))}, e.attrs()...)...)
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

// Observer receives a dispatcher's events. Observe runs after the event, in the goroutine that caused it, with no lock
// held; the work waits for it. A panic in it is swallowed and counted. It must be safe for concurrent use and must not
// call runtime.Goexit.
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

// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file has the events of a dispatcher and their observer.

import (
	"log/slog"
	"time"

	"github.com/stopbank/stopbank/lease"
)

// Kind says what an Event is about, in snake_case as in a log.
type Kind string

// The kinds of events. Err, Wait and Reason are set where the text names them, and Took, the time of handler and ledger, by
// Succeeded, Retrying, Postponed and GaveUp.
const (
	// Started: the handler is about to be called.
	Started Kind = "started"
	// Succeeded: the handler returned nil, and the ledger has recorded it.
	Succeeded Kind = "succeeded"
	// Retrying: the handler failed with Err and will be called again after Wait.
	Retrying Kind = "retrying"
	// Postponed: the handler asked to be called again after Wait, with Later.
	Postponed Kind = "postponed"
	// GaveUp: the handler failed with Err for the last time. ErrDied: its process died.
	GaveUp Kind = "gave_up"
	// DeadLettered: Config.DeadLetter has accepted the record. Err is the record's last failure.
	DeadLettered Kind = "dead_lettered"
	// DeadLetterFailed: Config.DeadLetter failed with Err and is called again after Wait.
	DeadLetterFailed Kind = "dead_letter_failed"
	// Skipped: a record that was fetched is done already.
	Skipped Kind = "skipped"
	// Reclaimed: the lease of a former holder was reclaimed.
	Reclaimed Kind = "reclaimed"
	// Foreign: another process took a lease after this one had taken the partition. It has Grace; then the Source is asked
	// which process owns the partition.
	Foreign Kind = "foreign"
	// Fenced: another process has reclaimed the lease, which the ledger reports as Err. The Source is asked which process
	// owns the partition: if it is still this one, the domain goes on, and if not, Run ends with ErrLost.
	Fenced Kind = "fenced"
	// Rejected: Concurrency rejected an attempt with Err. Sent once for each time that a domain has to wait.
	Rejected Kind = "rejected"
	// CallbackFailed: Rate, RateOf or Owner panicked, with Err. After a panic of a rate the attempt does not begin, and the
	// rates are asked again after Wait; after one of Owner the domain belongs to the owner "".
	CallbackFailed Kind = "callback_failed"
	// LedgerError: a call of the ledger failed unexpectedly, with Err. It is retried after Wait; without one, Compact is
	// retried with the next commit, and Release is not.
	LedgerError Kind = "ledger_error"
	// TakeFailed: the partition could not be opened or taken, because of Err; retried after Wait.
	TakeFailed Kind = "take_failed"
	// FetchFailed: the Source could not read from Offset, because of Err; retried after Wait.
	FetchFailed Kind = "fetch_failed"
	// CommitFailed: the Source did not accept the floor Offset, because of Err.
	CommitFailed Kind = "commit_failed"
	// Committed: the Source accepted the floor Offset.
	Committed Kind = "committed"
	// Taken: the partition was taken, to be read from Offset on.
	Taken Kind = "taken"
	// Drained: Run has taken the partition, or lost it, and is about to return Err. Offset is the floor.
	Drained Kind = "drained"
	// Stalled: records wait, or the partition cannot be taken, and nothing has ended for AttemptTimeout or more. Reason says
	// why, as Stats.Stalled does; Offset is the floor. Sent once in AttemptTimeout while it lasts, and at once if the log is rewound,
	// because of Err.
	Stalled Kind = "stalled"
)

// Event is one event of a dispatcher. Kind says which fields are set.
type Event struct {
	Kind       Kind
	Name       string // the partition's
	Domain     string
	Offset     int64
	Token      lease.Token
	RetryCount int
	Reason     string // of Stalled
	Err        error  // a *PanicError carries its stack
	Wait       time.Duration
	Took       time.Duration
}

// attrs returns the fields that are set, except Kind, and always Offset.
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
	if e.Reason != "" {
		attrs = append(attrs, slog.String("reason", e.Reason))
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

// observeLease observes e, which is about the record under l.
func (d *Dispatcher) observeLease(l lease.Lease, e Event) {
	e.Domain, e.Offset, e.Token = l.Domain, l.Offset, l.Token
	d.observe(e)
}

func (d *Dispatcher) observe(e Event) {
	if d.cfg.Observer == nil {
		return
	}
	defer func() {
		if recover() != nil {
			d.mu.Lock()
			d.panics++
			d.mu.Unlock()
		}
	}()
	e.Name = d.partition.Name
	d.cfg.Observer.Observe(e)
}

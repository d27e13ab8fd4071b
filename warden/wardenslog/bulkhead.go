// SPDX-License-Identifier: Apache-2.0

// The observer of a set of compartments: it selects the events worth a line.

package wardenslog

import (
	"errors"
	"log/slog"
	"strings"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
)

// Bulkhead returns the observer of one set (bulkhead.Config.Observer). Tenants are logged as their compartment. Its method
// waits for a mutex at most, and allocates only for an event that becomes a line or begins an episode.
func (l *Logger) Bulkhead() bulkhead.Observer {
	return &setLog{log: l, compartments: map[string]*compartmentLog{}}
}

// setLog is the state of the log of one set. Logger.mu guards it.
type setLog struct {
	log          *Logger
	compartments map[string]*compartmentLog
	decision     *decision.ControlDecision // applied last
	stale        bool
}

type compartmentLog struct{ rejected, dryRun episode }

// Observe logs the event, or counts it.
func (o *setLog) Observe(e bulkhead.Event) {
	l := o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.Kind {
	case bulkhead.Answered:
		o.answeredLocked(e)
	case bulkhead.Abandoned, bulkhead.FallbackFailed:
		o.outcomeLocked(e, string(e.Kind))
	case bulkhead.Returned:
		if e.Stack != nil && l.changeLocked(e.At) {
			l.putLocked(panicked(e))
		}
	case bulkhead.Resized:
		if l.changeLocked(e.At) {
			l.putLocked(planned(e, "compartments resized", slog.String("by", e.By)))
		}
	case bulkhead.Proposed:
		if l.changeLocked(e.At) {
			l.putLocked(planned(e, "plan proposed", slog.String("reasons", short(strings.Join(e.Proposal.Reasons, "; ")))))
		}
	case bulkhead.Applied: // the same decision is reported a second time when it has become stale
		stale := o.decision == e.Decision
		if o.decision = e.Decision; stale != o.stale {
			o.stale = stale
			l.staleLocked(e.At, stale, slog.Any("decision", e.Decision))
		}
	case bulkhead.ModeChanged:
		l.modeLocked(e.At, e.Mode, "compartment", e.Limiter)
	case bulkhead.Degraded: // a fallback has helped; its cause has been logged
	}
}

func (o *setLog) answeredLocked(e bulkhead.Event) {
	l, c := o.log, o.compartments[e.Limiter]
	if c == nil {
		c = new(compartmentLog)
		o.compartments[e.Limiter] = c
	}
	switch {
	case e.Outcome == decision.Rejected && e.Reason == decision.Canceled: // nothing was rejected
		return
	case e.Outcome == decision.Rejected:
		if n, ok := l.rejectLocked(&c.rejected, enforced, e.At, e.Reason, severity(e.Task.Priority)); ok {
			l.putLocked(n.aboutCall(e))
		}
		return
	case e.WouldReject != "":
		if n, ok := l.rejectLocked(&c.dryRun, dryRun, e.At, e.WouldReject, slog.LevelInfo); ok {
			l.putLocked(n.aboutCall(e))
		}
	}
	if e.Outcome == bulkhead.TimedOut || e.Outcome == bulkhead.Panicked {
		o.outcomeLocked(e, string(e.Outcome))
	}
	l.endLocked(&c.rejected, enforced, e.At, "compartment", e.Limiter)
	l.endLocked(&c.dryRun, dryRun, e.At, "compartment", e.Limiter)
}

// outcomeLocked logs a sample of what may come as often as requests do.
func (o *setLog) outcomeLocked(e bulkhead.Event, outcome string) {
	if o.log.sampleLocked(e.At) {
		o.log.putLocked(line{at: e.At, level: slog.LevelInfo, text: enforced + outcome, counts: true}.aboutCall(e))
	}
}

// Functions of their own make the lines, because the event moves to the heap.

func (n line) aboutCall(e bulkhead.Event) line {
	n.attrs = func() []slog.Attr { return call(e) }
	return n
}

func panicked(e bulkhead.Event) line {
	const longest = 8 << 10 // bytes
	return line{at: e.At, level: slog.LevelError, text: "stopbank: abandoned function panicked", attrs: func() []slog.Attr {
		return append(call(e), slog.String("stack", string(e.Stack[:min(len(e.Stack), longest)])))
	}}
}

func planned(e bulkhead.Event, text string, detail slog.Attr) line {
	return line{at: e.At, level: slog.LevelInfo, text: enforced + text, attrs: func() []slog.Attr {
		return []slog.Attr{slog.Uint64("revision", e.Revision), detail}
	}}
}

// call returns the attributes of one call. An error's text may have anything of a client in it; a rejection has parts.
func call(e bulkhead.Event) []slog.Attr {
	attrs := request(e.Task.ID, slog.String("compartment", e.Limiter))
	if e.Task.Name != "" {
		attrs = append(attrs, slog.String("tenant", short(e.Task.Name)))
	}
	if e.Reason != "" {
		attrs = append(attrs, slog.String("reason", string(e.Reason)))
	}
	if e.WouldReject != "" {
		attrs = append(attrs, slog.String("would_reject", string(e.WouldReject)))
	}
	attrs = append(attrs,
		slog.String("priority", e.Task.Priority.Class().String()), slog.Duration("waited", e.Waited), slog.Duration("took", e.Took))
	var rejection *decision.Rejection
	switch {
	case errors.As(e.Err, &rejection):
		short := *rejection
		short.Explanation = bounded(short.Explanation)
		attrs = append(attrs, slog.Any("err", &short))
	case e.Err != nil:
		attrs = append(attrs, slog.String("err", short(e.Err.Error())))
	}
	return attrs
}

// The observer of a set of compartments: it selects the events worth a line.

package wardenslog

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
)

// Bulkhead returns the observer for one set (bulkhead.Config.Observer). Tenants are logged as their compartment. Observe does
// not block, and allocates only for an event that becomes a line.
func (l *Logger) Bulkhead() bulkhead.Observer { return &setLog{log: l} }

// setLog is the state of the log of one set.
type setLog struct {
	log          *Logger
	compartments names[episodes]
	lastDecision atomic.Pointer[decision.ControlDecision] // applied last
	stale        atomic.Bool
}

// Observe logs the event, or counts it.
func (o *setLog) Observe(e bulkhead.Event) {
	now := o.log.sinceEpoch(e.At)
	switch e.Kind {
	case bulkhead.Answered:
		o.answered(e, now)
	case bulkhead.Abandoned, bulkhead.FallbackFailed:
		o.sample(e, now)
	case bulkhead.Returned:
		if e.Stack != nil {
			o.log.change(now, panicked(e))
		}
	case bulkhead.Resized:
		o.log.change(now, resized(e))
	case bulkhead.Proposed:
		o.log.change(now, proposed(e))
	case bulkhead.Applied:
		o.applied(e, now)
	case bulkhead.ModeChanged:
		o.log.valve(e.At, e.Mode, "compartment", e.Limiter)
	case bulkhead.Degraded: // a fallback has helped; its cause has been logged
	}
}

func (o *setLog) answered(e bulkhead.Event, now time.Duration) {
	p := o.compartments.of(e.Limiter, func() *episodes { p := o.log.episodes(); return &p })
	switch {
	case e.Outcome == decision.Rejected && e.Reason == decision.Canceled: // the caller canceled; nothing was rejected
	case e.Outcome == decision.Rejected:
		level := severity(e.Task.Priority)
		switch p.rejected.reject(now, e.Reason, level) {
		case begins:
			o.log.change(now, begun(enforced, level, e))
		case worsens: // its calls are of one priority
		case sampled:
			o.log.sample(o.sampleLine(enforced+msgRejected, e))
		}
	default:
		if e.WouldReject != "" {
			switch p.dryRun.reject(now, e.WouldReject, slog.LevelInfo) {
			case begins:
				o.log.change(now, begun(dryRun, slog.LevelInfo, e))
			case sampled:
				o.log.sample(o.sampleLine(dryRun+msgRejected, e))
			case silent, worsens:
			}
		}
		if e.Outcome == bulkhead.TimedOut || e.Outcome == bulkhead.Panicked {
			o.sample(e, now)
		}
		p.end(e.At, now, "compartment", e.Limiter)
	}
}

// sample logs what may come as often as requests do.
func (o *setLog) sample(e bulkhead.Event, now time.Duration) {
	if !o.log.spent[sample].spend(now) {
		o.log.leftOut.Add(1)
		return
	}
	text := "stopbank: " + string(e.Kind)
	if e.Kind == bulkhead.Answered {
		text = "stopbank: " + string(e.Outcome)
	}
	o.log.sample(o.sampleLine(text, e))
}

// applied logs that decisions have become stale, or fresh again. The same decision is reported a second time when it has
// become stale.
func (o *setLog) applied(e bulkhead.Event, now time.Duration) {
	is := o.lastDecision.Swap(e.Decision) == e.Decision
	if o.stale.Swap(is) != is {
		o.log.change(now, staleLine(e.At, is, slog.Any("decision", e.Decision)))
	}
}

// The lines are made apart, as those of a limiter are.

func begun(of string, level slog.Level, e bulkhead.Event) line {
	return line{at: e.At, level: level, text: of + msgStarted, attrs: func() []slog.Attr { return about(e) }}
}

// sampleLine is the line about one call, as a sample.
func (o *setLog) sampleLine(text string, e bulkhead.Event) line {
	return line{at: e.At, text: text, attrs: func() []slog.Attr { return append(about(e), slog.Uint64("left_out", o.log.leftOut.Swap(0))) }}
}

// about is what an event says of one call. Its error is for people, and may have anything of a client in it; a rejection tells its parts.
func about(e bulkhead.Event) []slog.Attr {
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
	attrs = append(attrs, slog.String("priority", e.Task.Priority.Class().String()), slog.Duration("waited", e.Waited), slog.Duration("took", e.Took))
	var rejection *decision.Rejection
	switch {
	case errors.As(e.Err, &rejection):
		said := *rejection
		said.Explanation = bounded(said.Explanation)
		attrs = append(attrs, slog.Any("err", &said))
	case e.Err != nil:
		attrs = append(attrs, slog.String("err", short(e.Err.Error())))
	}
	return attrs
}

// longestStack is how many bytes of a stack are logged.
const longestStack = 8 << 10

func panicked(e bulkhead.Event) line {
	return line{at: e.At, level: slog.LevelError, text: "stopbank: abandoned function panicked", attrs: func() []slog.Attr {
		return append(about(e), slog.String("stack", string(e.Stack[:min(len(e.Stack), longestStack)])))
	}}
}

func resized(e bulkhead.Event) line {
	return line{at: e.At, level: slog.LevelInfo, text: "stopbank: compartments resized", attrs: func() []slog.Attr {
		return []slog.Attr{slog.Uint64("revision", e.Revision), slog.String("by", e.By)}
	}}
}

func proposed(e bulkhead.Event) line {
	return line{at: e.At, level: slog.LevelInfo, text: "stopbank: plan proposed", attrs: func() []slog.Attr {
		return []slog.Attr{slog.Uint64("revision", e.Revision), slog.String("reasons", short(strings.Join(e.Proposal.Reasons, "; ")))}
	}}
}

// The observer of a limiter: it selects the events worth a line.

package wardenslog

import (
	"cmp"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// limiterLog is the state of the log of one limiter.
type limiterLog struct {
	log *Logger
	episodes

	stale atomic.Bool // the last decision is
}

// Observe logs an event of a limiter, or counts it: a Logger is the observer of any number of limiters (limiter.Config.Observer).
// They share the lines per second; those of one name, and all without one, share their episodes. Observe does not block, and
// allocates only for an event that becomes a line.
func (l *Logger) Observe(e limiter.Event) {
	l.limiters.of(e.Limiter, func() *limiterLog { return &limiterLog{log: l, episodes: l.episodes()} }).observe(e)
}

func (o *limiterLog) observe(e limiter.Event) {
	now := o.log.sinceEpoch(e.At)
	switch e.Outcome {
	case decision.Rejected:
		o.rule(e, now)
		level := severity(e.Task.Priority)
		switch o.rejected.reject(now, e.Reason, level) {
		case begins:
			o.log.change(now, rejecting(enforced+msgStarted, level, e))
		case worsens:
			o.log.change(now, rejecting(enforced+msgWorse, level, e))
		case sampled:
			o.log.sample(o.log.rejectedBy(enforced, e))
		}
	case decision.Started:
		o.rule(e, now)
		if e.WouldReject != "" {
			switch o.dryRun.reject(now, e.WouldReject, slog.LevelInfo) {
			case begins:
				o.log.change(now, rejecting(dryRun+msgStarted, slog.LevelInfo, e))
			case sampled:
				o.log.sample(o.log.rejectedBy(dryRun, e))
			case silent, worsens:
			}
		}
		o.end(e.At, now, "limiter", e.Limiter)
	case decision.Executed: // it tells of the decision under which it started
		o.end(e.At, now, "limiter", e.Limiter)
	case decision.ModeChanged:
		o.log.valve(e.At, e.Mode, "limiter", e.Limiter)
	case decision.OutcomeCanceled: // the caller canceled; nothing was rejected
	}
}

// rule logs that decisions have become stale, or fresh again.
func (o *limiterLog) rule(e limiter.Event, now time.Duration) {
	if stale := e.DecisionState == decision.Stale; o.stale.Load() != stale && o.stale.CompareAndSwap(!stale, stale) {
		o.log.change(now, staleLine(e.At, stale, slog.String("limiter", e.Limiter), slog.Any("decision", e.Decision)))
	}
}

// The lines are made apart: what a line refers to is on the heap, and an event without one must not be.

// The messages about decisions.
const (
	msgStale = "stopbank: control decisions are stale"
	msgFresh = "stopbank: control decisions are fresh again"
)

// staleLine is the line about decisions of e, which have become stale or fresh.
func staleLine(at time.Time, stale bool, attrs ...slog.Attr) line {
	n := line{at: at, level: slog.LevelInfo, text: msgFresh, attrs: func() []slog.Attr { return attrs }}
	if stale {
		n.level, n.text = slog.LevelWarn, msgStale
	}
	return n
}

func rejecting(text string, level slog.Level, e limiter.Event) line {
	return line{at: e.At, level: level, text: text, attrs: func() []slog.Attr { return why(e) }}
}

func (l *Logger) rejectedBy(of string, e limiter.Event) line {
	return line{at: e.At, text: of + msgRejected, attrs: func() []slog.Attr {
		return append(why(e), slog.Uint64("left_out", l.leftOut.Swap(0)))
	}}
}

// valve logs a change of the mode, one that leaves the service without protection or one that brings it back, whatever else was
// logged in this second.
func (l *Logger) valve(at time.Time, mode decision.Mode, kind, name string) {
	n := line{at: at, level: slog.LevelWarn, text: "stopbank: not enforcing", attrs: func() []slog.Attr {
		return []slog.Attr{slog.String(kind, name), slog.String("mode", mode.String())}
	}}
	if mode == decision.Enforce {
		n.level, n.text = slog.LevelInfo, "stopbank: enforcing"
	}
	l.put(n)
}

// why is a rejection with what lines are grouped by in front.
func why(e limiter.Event) []slog.Attr {
	return request(e.Task.ID,
		slog.String("limiter", e.Limiter), slog.String("reason", string(cmp.Or(e.Reason, e.WouldReject))), slog.String("priority", e.Task.Priority.Class().String()),
		slog.Any("why", bounded(e.Explanation)),
	)
}

// longest is how many bytes are logged of what a client may have sent.
const longest = 256

// bounded has no ID: the line has it.
func bounded(e decision.Explanation) decision.Explanation {
	e.Task.Name, e.Task.ID = short(e.Task.Name), ""
	return e
}

// request are the attributes of a line about one request: in each such line its id is request_id, at the top, so that one search finds all.
func request(id string, attrs ...slog.Attr) []slog.Attr {
	if id == "" {
		return attrs
	}
	return append([]slog.Attr{slog.String("request_id", short(id))}, attrs...)
}

func short(s string) string {
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "..."
}

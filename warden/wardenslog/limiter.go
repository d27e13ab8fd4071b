// What is worth a line of what a limiter tells.

package wardenslog

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
)

// Limiter returns the observer for one limiter (limiter.Config.Observer): it remembers whether that one is refusing, so
// each limiter needs one of its own. They share the logger's number of lines. Observe does not block, and allocates only
// for an event that becomes a line.
func (l *Logger) Limiter() limiter.Observer {
	return &limiterLog{log: l, episodes: l.episodes()}
}

// limiterLog is what is known of one limiter.
type limiterLog struct {
	log *Logger
	episodes

	standing atomic.Uint32 // of the decision that ruled last
}

// Observe logs the event, or counts it.
func (o *limiterLog) Observe(e limiter.Event) {
	now := o.log.sinceEpoch(e.At)
	switch e.Outcome {
	case limiter.Rejected:
		o.rule(e, now)
		switch o.refused.refuse(now, e.Reason.String()) {
		case begins:
			o.log.change(now, refusing(e))
		case sampled:
			o.log.sample(o.log.sampleOf(e))
		}
	case limiter.Started:
		o.rule(e, now)
		if e.WouldReject != 0 {
			switch o.dryRun.refuse(now, e.WouldReject.String()) {
			case begins:
				o.log.change(now, refusing(e))
			case sampled:
				o.log.sample(o.log.sampleOf(e))
			}
		}
		o.ends(e.At, now, "limiter", e.Limiter)
	case limiter.Executed: // it tells of the decision under which it started
		o.ends(e.At, now, "limiter", e.Limiter)
	case limiter.ModeChanged:
		o.log.valve(e.At, e.Mode, "limiter", e.Limiter)
	case limiter.Withdrawn: // whoever asked went away; nobody was refused
	}
}

// rule logs that decisions have become stale, or fresh again.
func (o *limiterLog) rule(e limiter.Event, now time.Duration) {
	was, is := limiter.Standing(o.standing.Load()), e.Standing
	if was != is && o.standing.CompareAndSwap(uint32(was), uint32(is)) && (was == limiter.Stale || is == limiter.Stale) {
		o.log.change(now, ruled(e))
	}
}

// The lines are made apart: what a line refers to is on the heap, and an event without one must not be.

func ruled(e limiter.Event) line {
	text := "warden: decisions are fresh"
	if e.Standing == limiter.Stale {
		text = "warden: decisions are stale"
	}
	return line{at: e.At, text: text, attrs: func() []slog.Attr {
		return []slog.Attr{slog.String("limiter", e.Limiter), slog.Any("decision", e.Decision)}
	}}
}

// valve logs a change of the mode, one that leaves the service without protection or one that brings it back, whatever else was
// logged in this second.
func (l *Logger) valve(at time.Time, mode limiter.Mode, kind, name string) {
	n := line{at: at, level: l.changes, text: "warden: not enforcing", attrs: func() []slog.Attr {
		return []slog.Attr{slog.String(kind, name), slog.String("mode", mode.String())}
	}}
	if mode == limiter.Enforce {
		n.level, n.text = slog.LevelInfo, "warden: enforcing"
	}
	l.put(n)
}

// beginning is how a line about e begins.
func beginning(e limiter.Event) string {
	if e.WouldReject != 0 {
		return "warden: " + dryRun
	}
	return "warden: "
}

func refusing(e limiter.Event) line {
	return line{at: e.At, text: beginning(e) + "refusing", attrs: func() []slog.Attr {
		return []slog.Attr{slog.Any("why", bounded(e.Explanation))}
	}}
}

func (l *Logger) sampleOf(e limiter.Event) line {
	return line{at: e.At, text: beginning(e) + "refused", attrs: func() []slog.Attr {
		return []slog.Attr{slog.Any("why", bounded(e.Explanation)), slog.Uint64("left_out", l.leftOut.Swap(0))}
	}}
}

// longest is how many bytes are logged of what a client may have sent.
const longest = 256

func bounded(e limiter.Explanation) limiter.Explanation {
	e.Task.Name = short(e.Task.Name)
	return e
}

func short(s string) string {
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "..."
}

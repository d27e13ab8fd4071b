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
func (l *Logger) Limiter() limiter.Observer { return &limiterLog{log: l} }

// limiterLog is what is known of one limiter.
type limiterLog struct {
	log      *Logger
	standing atomic.Uint32 // of the decision that ruled last
	since    atomic.Int64  // when refusing began, in nanoseconds from the logger's epoch; 0: calm
	last     atomic.Int64  // when something was refused last
	seen     atomic.Uint64 // refusals that were no change
	refused  [16]atomic.Uint64
}

// Observe logs the event, or counts it.
func (o *limiterLog) Observe(e limiter.Event) {
	now := max(1, e.At.Sub(o.log.epoch))
	switch e.Outcome {
	case limiter.Rejected:
		o.rule(e, now)
		o.refuse(e, now)
	case limiter.Started:
		o.rule(e, now)
		o.calm(e, now)
	case limiter.Executed: // it tells of the decision under which it started
		o.calm(e, now)
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

// refuse logs that refusing begins, or one of the refusals while it lasts.
func (o *limiterLog) refuse(e limiter.Event, now time.Duration) {
	o.last.Store(int64(now))
	if i := int(e.Reason); i < len(o.refused) {
		o.refused[i].Add(1)
	}
	if o.since.Load() == 0 && o.since.CompareAndSwap(0, int64(now)) {
		o.log.change(now, refusing(e))
		return
	}
	if o.seen.Add(1)%o.log.every != 0 || !o.log.spent[refusal].spend(now) || !o.log.put(o.log.refused(e)) {
		o.log.leftOut.Add(1)
	}
}

// calm logs that refusing has ended, if it has.
func (o *limiterLog) calm(e limiter.Event, now time.Duration) {
	since := o.since.Load()
	if since != 0 && int64(now)-o.last.Load() >= int64(o.log.calm) && o.since.CompareAndSwap(since, 0) {
		o.log.change(now, o.ended(e, time.Duration(o.last.Load()-since)))
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

func refusing(e limiter.Event) line {
	return line{at: e.At, text: "warden: refusing", attrs: func() []slog.Attr {
		return []slog.Attr{slog.Any("why", bounded(e.Explanation))}
	}}
}

func (l *Logger) refused(e limiter.Event) line {
	return line{at: e.At, text: "warden: refused", level: l.refusals, attrs: func() []slog.Attr {
		return []slog.Attr{slog.Any("why", bounded(e.Explanation)), slog.Uint64("left_out", l.leftOut.Swap(0))}
	}}
}

func (o *limiterLog) ended(e limiter.Event, lasted time.Duration) line {
	var counts []any
	for i := range o.refused {
		if n := o.refused[i].Swap(0); n > 0 {
			counts = append(counts, slog.Uint64(limiter.Reason(i).String(), n))
		}
	}
	return line{at: e.At, text: "warden: calm", attrs: func() []slog.Attr {
		return []slog.Attr{
			slog.String("limiter", e.Limiter), slog.Duration("lasted", lasted), slog.Group("refused", counts...),
			slog.Uint64("left_out", o.log.leftOut.Swap(0)),
		}
	}}
}

// longest is how many bytes of a task's name are logged: it may be what a client sent.
const longest = 256

func bounded(e limiter.Explanation) limiter.Explanation {
	if len(e.Task.Name) > longest {
		e.Task.Name = strings.ToValidUTF8(e.Task.Name[:longest], "") + "..."
	}
	return e
}

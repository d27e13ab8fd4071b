// SPDX-License-Identifier: Apache-2.0

// Episodes of rejections, and the changes that limiters and compartments share.

package wardenslog

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// Prefixes of messages.
const (
	enforced = "stopbank: "
	dryRun   = "stopbank: dry run: "
)

// quiet is the time without a rejection after which an episode ends.
const quiet = 10 * time.Second

// severity is the level of rejecting work of this priority: background work is there to be rejected first.
func severity(p decision.Priority) slog.Level {
	switch p.Class() {
	case decision.Background:
		return slog.LevelInfo
	case decision.Critical:
		return slog.LevelError
	}
	return slog.LevelWarn
}

// episode is one stretch of rejections of a limiter or a compartment. Logger.mu guards it.
type episode struct {
	began, last time.Time // the first and the last rejection
	highest     slog.Level
	rejected    map[decision.RejectionReason]uint64 // nil while nothing is rejected
}

// rejectLocked counts a rejection and returns its line, which lacks attributes; false: none.
func (l *Logger) rejectLocked(
	p *episode, prefix string, at time.Time, reason decision.RejectionReason, level slog.Level,
) (line, bool) {
	first, worse := p.rejected == nil, level > p.highest
	if first {
		*p = episode{began: at, highest: level, rejected: map[decision.RejectionReason]uint64{}}
	}
	p.last, p.highest = at, max(p.highest, level)
	p.rejected[reason]++
	n, text, lines := line{at: at, level: level}, "rejecting started", &l.changes
	switch {
	case first:
	case worse:
		text = "rejecting reached a higher priority"
	default:
		n.level, n.counts, text, lines = slog.LevelInfo, true, "rejected", &l.samples
	}
	if !l.spendLocked(lines, at) {
		return line{}, false
	}
	n.text = prefix + text
	return n, true
}

// endLocked logs that the episode is over, if it is.
func (l *Logger) endLocked(p *episode, prefix string, at time.Time, kind, name string) {
	if p.rejected == nil || at.Sub(p.last) < quiet {
		return
	}
	if l.changeLocked(at) {
		l.putLocked(ending(*p, prefix, at, slog.String(kind, name)))
	}
	*p = episode{}
}

func ending(p episode, prefix string, at time.Time, source slog.Attr) line {
	return line{at: at, level: slog.LevelInfo, text: prefix + "rejecting ended", counts: true, attrs: func() []slog.Attr {
		var counts []any
		for _, reason := range slices.Sorted(maps.Keys(p.rejected)) {
			counts = append(counts, slog.Uint64(string(reason), p.rejected[reason]))
		}
		return []slog.Attr{source, slog.Duration("lasted", p.last.Sub(p.began)), slog.Group("rejected", counts...)}
	}}
}

// staleLocked logs that decisions have become stale, or fresh again.
func (l *Logger) staleLocked(at time.Time, stale bool, attrs ...slog.Attr) {
	n := line{at: at, level: slog.LevelInfo, text: "stopbank: control decisions are fresh again"}
	if stale {
		n.level, n.text = slog.LevelWarn, "stopbank: control decisions are stale"
	}
	n.attrs = func() []slog.Attr { return attrs }
	if l.changeLocked(at) {
		l.putLocked(n)
	}
}

// modeLocked logs a change of the mode, whatever else was logged in this second: it leaves the service without protection, or
// brings it back.
func (l *Logger) modeLocked(at time.Time, mode decision.Mode, kind, name string) {
	n := line{at: at, level: slog.LevelWarn, text: "stopbank: not enforcing"}
	if mode == decision.Enforce {
		n.level, n.text = slog.LevelInfo, "stopbank: enforcing"
	}
	n.attrs = func() []slog.Attr { return []slog.Attr{slog.String(kind, name), slog.String("mode", mode.String())} }
	l.putLocked(n)
}

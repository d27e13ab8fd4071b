// One stretch of rejecting: when it begins, how bad it gets, what is logged of it, and when it is over.

package wardenslog

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// The messages about an episode, and how those of a dry run begin. Values are in attributes, so that lines can be grouped by message.
const (
	msgStarted  = "rejecting started"
	msgWorse    = "rejecting reached a higher priority"
	msgRejected = "rejected"
	msgEnded    = "rejecting ended"

	enforced = "stopbank: "
	dryRun   = "stopbank: dry run: "
)

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

// episodes are those of one limiter or compartment: of its rejections, and of the would-be rejections of a dry run, which
// harm no caller and are Info.
type episodes struct{ rejected, dryRun episode }

func (l *Logger) episodes() episodes {
	return episodes{episode{log: l, of: enforced}, episode{log: l, of: dryRun}}
}

// names keeps something for each name of a limiter or compartment.
type names[T any] struct {
	known atomic.Pointer[map[string]*T] // replaced as a whole, under mu, never written to
	mu    sync.Mutex
}

// of returns what belongs to name, which is first() at the first time.
func (n *names[T]) of(name string, first func() *T) *T {
	if m := n.known.Load(); m != nil && (*m)[name] != nil {
		return (*m)[name]
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	next := map[string]*T{}
	if m := n.known.Load(); m != nil {
		if v := (*m)[name]; v != nil {
			return v
		}
		next = maps.Clone(*m)
	}
	v := first()
	next[name] = v
	n.known.Store(&next)
	return v
}

// end logs that either is over, if it is.
func (p *episodes) end(at time.Time, now time.Duration, kind, name string) {
	for _, e := range [...]*episode{&p.rejected, &p.dryRun} {
		if lasted, ended := e.tryEnd(now); ended {
			e.log.change(now, e.endLine(at, slog.String(kind, name), lasted))
		}
	}
}

// episode counts the rejections of one limiter or compartment.
type episode struct {
	log   *Logger
	of    string        // enforced or dryRun
	since atomic.Int64  // when it began, in nanoseconds from the logger's epoch; 0: nothing is rejected
	worst atomic.Int64  // the highest severity in it, and 1; 0: none
	last  atomic.Int64  // when something was rejected last
	seen  atomic.Uint64 // rejections that began none

	mu       sync.Mutex // guards rejected
	rejected map[decision.RejectionReason]uint64
}

// The turns that an episode takes with a rejection.
type turn uint8

const (
	silent turn = iota
	begins
	worsens
	sampled
)

// reject counts a rejection and returns how to log it. The line of a sampled one has been paid for.
func (p *episode) reject(now time.Duration, reason decision.RejectionReason, level slog.Level) turn {
	p.last.Store(int64(now))
	p.count(reason)
	first, worse := p.since.Load() == 0 && p.since.CompareAndSwap(0, int64(now)), p.raise(int64(level)+1)
	switch {
	case first:
		return begins
	case worse:
		return worsens
	case p.seen.Add(1)%p.log.every != 0, !p.log.spent[sample].spend(now):
		p.log.leftOut.Add(1)
		return silent
	}
	return sampled
}

func (p *episode) count(reason decision.RejectionReason) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rejected == nil {
		p.rejected = map[decision.RejectionReason]uint64{}
	}
	p.rejected[reason]++
}

// raise records a severity, and reports whether it is the highest so far.
func (p *episode) raise(to int64) bool {
	for {
		worst := p.worst.Load()
		if to <= worst {
			return false
		}
		if p.worst.CompareAndSwap(worst, to) {
			return true
		}
	}
}

// tryEnd ends the episode if it has been quiet for long enough, and returns how long it lasted. It returns true to exactly one
// caller.
func (p *episode) tryEnd(now time.Duration) (lasted time.Duration, ended bool) {
	since := p.since.Load()
	if since == 0 || int64(now)-p.last.Load() < int64(p.log.quiet) || !p.since.CompareAndSwap(since, 0) {
		return 0, false
	}
	p.worst.Store(0)
	return time.Duration(p.last.Load() - since), true
}

// endLine returns the line about the end, and resets the counts.
func (p *episode) endLine(at time.Time, of slog.Attr, lasted time.Duration) line {
	var counts []any
	p.mu.Lock()
	for _, reason := range slices.Sorted(maps.Keys(p.rejected)) {
		counts = append(counts, slog.Uint64(string(reason), p.rejected[reason]))
	}
	p.rejected = nil
	p.mu.Unlock()
	return line{at: at, level: slog.LevelInfo, text: p.of + msgEnded, attrs: func() []slog.Attr {
		return []slog.Attr{of, slog.Duration("lasted", lasted), slog.Group("rejected", counts...), slog.Uint64("left_out", p.log.leftOut.Swap(0))}
	}}
}

// One stretch of refusing: when it begins, what is told of it, and when it is over.

package wardenslog

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
)

// episode is what is known of the refusals of one limiter or compartment.
type episode struct {
	log     *Logger
	of      string        // begins its lines: "dry run: ", or nothing
	since   atomic.Int64  // when it began, in nanoseconds from the logger's epoch; 0: calm
	last    atomic.Int64  // when something was refused last
	seen    atomic.Uint64 // refusals that did not begin one
	refused [kindsOfReason]atomic.Uint64
}

// episodes are those of one limiter or compartment: of what it refuses, and of what it would have refused in a dry run.
type episodes struct{ refused, dryRun episode }

// dryRun begins the lines about what would have been refused.
const dryRun = "dry run: "

func (l *Logger) episodes() episodes { return episodes{episode{log: l}, episode{log: l, of: dryRun}} }

// ends logs that either is over, if it is.
func (p *episodes) ends(at time.Time, now time.Duration, kind, name string) {
	for _, e := range [...]*episode{&p.refused, &p.dryRun} {
		if lasted, is := e.over(now); is {
			e.log.change(now, e.calmed(at, slog.String(kind, name), lasted))
		}
	}
}

const kindsOfReason = 11

// reasons are those of limiters and compartments; the last stands for any other.
func reasons() [kindsOfReason]string {
	return [...]string{
		"pressure_high", "queue_overflow", "probabilistic_shedding", "priority_drop", "patience_exceeded", "deadline_exceeded", "closed",
		bulkhead.ReasonTimeoutQueued, bulkhead.ReasonBreakerOpen, bulkhead.ReasonReentry, "other",
	}
}

// The turns that an episode takes with a refusal.
type turn uint8

const (
	silent turn = iota
	begins
	sampled
)

// refuse counts a refusal and says what is to be told of it. A sampled one has had its line paid for.
func (p *episode) refuse(now time.Duration, reason string) turn {
	p.last.Store(int64(now))
	known := reasons()
	i := slices.Index(known[:], reason)
	if i < 0 {
		i = kindsOfReason - 1
	}
	p.refused[i].Add(1)
	if p.since.Load() == 0 && p.since.CompareAndSwap(0, int64(now)) {
		return begins
	}
	if p.seen.Add(1)%p.log.every != 0 || !p.log.spent[refusal].spend(now) {
		p.log.leftOut.Add(1)
		return silent
	}
	return sampled
}

// over says whether it has just ended, and how long it was.
func (p *episode) over(now time.Duration) (lasted time.Duration, is bool) {
	since := p.since.Load()
	if since == 0 || int64(now)-p.last.Load() < int64(p.log.calm) || !p.since.CompareAndSwap(since, 0) {
		return 0, false
	}
	return time.Duration(p.last.Load() - since), true
}

// calmed is the line about its end.
func (p *episode) calmed(at time.Time, of slog.Attr, lasted time.Duration) line {
	var counts []any
	for i, reason := range reasons() {
		if n := p.refused[i].Swap(0); n > 0 {
			counts = append(counts, slog.Uint64(reason, n))
		}
	}
	return line{at: at, text: "warden: " + p.of + "calm", attrs: func() []slog.Attr {
		return []slog.Attr{of, slog.Duration("lasted", lasted), slog.Group("refused", counts...), slog.Uint64("left_out", p.log.leftOut.Swap(0))}
	}}
}

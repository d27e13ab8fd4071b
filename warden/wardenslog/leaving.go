// SPDX-License-Identifier: Apache-2.0

// Episodes of clients that leave without an answer.

package wardenslog

import (
	"log/slog"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// Some clients always leave: who closes a page cancels what it still loads. An episode begins when in ten seconds at least fewLeave
// tasks of a class, and more than this share of those that ended, had no answer.
const (
	leavingWindow   = 10 * time.Second
	fewLeave        = 5
	criticalLeave   = 0.01
	otherwiseLeaves = 0.05
)

// leaving counts the tasks of one priority class that ended. Logger.mu guards it.
type leaving struct {
	since       time.Time // the begin of the window
	left, ended uint64    // in the window

	began, last   time.Time // of the episode: its begin, and when somebody left last; zero: there is none
	allLeft, over uint64    // of the episode: who left, of how many
}

// unserved reports whether a task ended without an answer, though it was not rejected.
func unserved(e *limiter.Event) bool { return e.Outcome == decision.OutcomeCanceled || e.Abandoned }

// leaveLocked counts a task that has ended, with an answer or without.
func (l *Logger) leaveLocked(p *leaving, e *limiter.Event) {
	if e.At.Sub(p.since) >= leavingWindow {
		if !p.began.IsZero() && p.ended > 0 && !p.many(e.Task.Priority) {
			if l.changeLocked(e.At) {
				l.putLocked(staying(*p, e.At, e.Limiter, e.Task.Priority))
			}
			*p = leaving{}
		}
		p.since, p.left, p.ended = e.At, 0, 0
	}
	p.ended++
	p.over++
	if !unserved(e) {
		return
	}
	p.left++
	p.allLeft++
	p.last = e.At
	if p.began.IsZero() && p.left >= fewLeave && p.many(e.Task.Priority) {
		p.began, p.allLeft, p.over = e.At, p.left, p.ended
		if l.changeLocked(e.At) {
			l.putLocked(left(*p, *e))
		}
	}
}

// many reports whether more leave than always do.
func (p *leaving) many(priority decision.Priority) bool {
	share := otherwiseLeaves
	if priority.Class() == decision.Critical {
		share = criticalLeave
	}
	return float64(p.left) > share*float64(p.ended)
}

// Functions of their own make the lines, because the event moves to the heap.

func left(p leaving, e limiter.Event) line {
	return line{at: e.At, level: severity(e.Task.Priority), text: "stopbank: clients leave", attrs: func() []slog.Attr {
		return request(e.Task.ID, slog.String("limiter", e.Limiter), slog.String("priority", e.Task.Priority.Class().String()),
			slog.Uint64("left", p.left), slog.Uint64("of", p.ended), slog.Any("why", bounded(e.Explanation)))
	}}
}

func staying(p leaving, at time.Time, limiter string, priority decision.Priority) line {
	return line{at: at, level: slog.LevelInfo, text: "stopbank: clients stay again", attrs: func() []slog.Attr {
		return []slog.Attr{slog.String("limiter", limiter), slog.String("priority", priority.Class().String()),
			slog.Duration("lasted", p.last.Sub(p.began)), slog.Uint64("left", p.allLeft), slog.Uint64("of", p.over)}
	}}
}

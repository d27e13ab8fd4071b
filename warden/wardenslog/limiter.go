// SPDX-License-Identifier: Apache-2.0

// The observer of a limiter: it selects the events worth a line.

package wardenslog

import (
	"cmp"
	"log/slog"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// Limiter returns the observer of one limiter (limiter.Config.Observer). Its method waits for a mutex at most, and allocates
// only for an event that becomes a line or begins an episode.
func (l *Logger) Limiter() limiter.Observer { return &limiterLog{log: l} }

// limiterLog is the state of the log of one limiter. Logger.mu guards it.
type limiterLog struct {
	log              *Logger
	rejected, dryRun episode
	leaving          [4]leaving // by priority class
	stale            bool       // the decision under which the last task started or was rejected
}

// Observe logs the event, or counts it.
func (o *limiterLog) Observe(e limiter.Event) {
	o.log.mu.Lock()
	defer o.log.mu.Unlock()
	switch l := o.log; e.Outcome {
	case decision.Rejected:
		o.decidedLocked(e)
		o.leaveLocked(&e)
		if n, ok := l.rejectLocked(&o.rejected, enforced, e.At, e.Reason, severity(e.Task.Priority)); ok {
			l.putLocked(n.about(e))
		}
	case decision.Started:
		o.decidedLocked(e)
		if e.WouldReject != "" {
			if n, ok := l.rejectLocked(&o.dryRun, dryRun, e.At, e.WouldReject, slog.LevelInfo); ok {
				l.putLocked(n.about(e))
			}
		}
		o.endLocked(e)
	case decision.Executed: // its decision is that of its start
		o.leaveLocked(&e)
		o.endLocked(e)
	case decision.ModeChanged:
		l.modeLocked(e.At, e.Mode, "limiter", e.Limiter)
	case decision.OutcomeCanceled: // nothing was rejected
		o.leaveLocked(&e)
	}
}

// leaveLocked counts a task that has ended in its class: -64, 0, 64 and 127 become 0 to 3.
func (o *limiterLog) leaveLocked(e *limiter.Event) {
	o.log.leaveLocked(&o.leaving[(int(e.Task.Priority.Class())+65)>>6], e)
}

func (o *limiterLog) endLocked(e limiter.Event) {
	o.log.endLocked(&o.rejected, enforced, e.At, "limiter", e.Limiter)
	o.log.endLocked(&o.dryRun, dryRun, e.At, "limiter", e.Limiter)
}

func (o *limiterLog) decidedLocked(e limiter.Event) {
	if stale := e.DecisionState == decision.Stale; stale != o.stale {
		o.stale = stale
		o.log.staleLocked(e.At, stale, slog.String("limiter", e.Limiter), slog.Any("decision", e.Decision))
	}
}

// about returns the line with the attributes of a rejection. It is a function of its own because the event moves to the heap.
func (n line) about(e limiter.Event) line {
	n.attrs = func() []slog.Attr {
		return request(e.Task.ID,
			slog.String("limiter", e.Limiter), slog.String("reason", string(cmp.Or(e.Reason, e.WouldReject))),
			slog.String("priority", e.Task.Priority.Class().String()), slog.Any("why", bounded(e.Explanation)),
		)
	}
	return n
}

// bounded returns the explanation without the ID, which the line has.
func bounded(e decision.Explanation) decision.Explanation {
	e.Task.Name, e.Task.ID = short(e.Task.Name), ""
	return e
}

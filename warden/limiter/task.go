// SPDX-License-Identifier: Apache-2.0

// A task's deadline and class.

package limiter

import (
	"context"
	"math"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/queue"
)

// Task describes one execution to be admitted.
type Task = decision.Task

// lowest is the lowest priority.
const lowest decision.Priority = math.MinInt8

// classes is the number of priority classes, and class the index of that of p: -64, 0, 64 and 127 become 0 to 3.
const classes = 4

func class(p decision.Priority) int { return (int(p.Class()) + 65) >> 6 }

// A deadline is the earlier of a task's own and its context's.
type deadline struct {
	at          time.Time
	fromContext bool
	due         time.Duration // by the limiter's clock; queue.Never: no deadline
}

func deadlineOf(ctx context.Context, t Task, now time.Duration) deadline {
	d := deadline{at: t.Deadline}
	if at, ok := ctx.Deadline(); ok && (t.Deadline.IsZero() || !t.Deadline.Before(at)) {
		d.at, d.fromContext = at, true
	}
	if d.at.IsZero() {
		return deadline{due: queue.Never}
	}
	// Not at.Sub(epoch): a deadline may have no monotonic reading, and the wall clock may have been set since.
	d.due = min(time.Until(d.at), queue.Never-1-now) + now
	return d
}

func (d deadline) source() decision.DeadlineSource {
	switch {
	case d.at.IsZero():
		return ""
	case d.fromContext:
		return "context"
	}
	return "task"
}

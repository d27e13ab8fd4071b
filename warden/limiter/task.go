// A task is what asks to run: how much it matters, and until when.

package limiter

import (
	"context"
	"math"
	"strconv"
	"time"
)

// Task describes one execution that is asked for. The zero Task has normal priority and no deadline.
type Task struct {
	// Name appears in explanations; it may be empty. It groups nothing, so it need not be unique.
	Name string
	// Priority decides who starts first and who is refused first.
	Priority Priority
	// Deadline is the instant after which the work is worth nothing; the zero time means none. The deadline of the
	// context counts as well: the earlier of the two. It only prevents starting; what runs is not interrupted.
	Deadline time.Time
}

// Priority orders tasks: higher first. Every value of an int8 is one.
type Priority int8

// Common priorities. Any number between them may be used.
const (
	Background Priority = -64 // nobody is waiting for it
	Normal     Priority = 0
	High       Priority = 64
	Critical   Priority = 127 // the highest there is

	lowest Priority = -128
)

// String is the name of a common priority, else the number.
func (p Priority) String() string {
	switch p {
	case Background:
		return "background"
	case Normal:
		return "normal"
	case High:
		return "high"
	case Critical:
		return "critical"
	}
	return strconv.Itoa(int(p))
}

// Inside, time is how long the limiter has existed, by the monotonic clock.

// never is the due time of a task without a deadline.
const never = time.Duration(math.MaxInt64)

func (l *Limiter) clock() time.Duration { return time.Since(l.epoch) }

// due is when the earlier of the task's own deadline and the context's comes.
func (t Task) due(ctx context.Context, now time.Duration) time.Duration {
	d, ok := ctx.Deadline()
	if !ok || !t.Deadline.IsZero() && t.Deadline.Before(d) {
		d = t.Deadline
	}
	if d.IsZero() {
		return never
	}
	// Not d.Sub(epoch): a deadline may have no monotonic reading, and the wall clock may have been set since.
	return min(time.Until(d), never-now) + now
}

// missed is whether a task must not be started now: its deadline has passed, or less time is left than it is expected
// to take.
func missed(due, now, expected time.Duration) bool {
	return due != never && (due <= now || due-now < expected)
}

// missedAt is the first instant at which missed is true.
func missedAt(due, expected time.Duration) time.Duration {
	if expected == 0 {
		return due
	}
	return due - expected + 1
}

// A task is what asks to run: how much it matters, and until when.

package limiter

import (
	"context"
	"strconv"
	"time"

	"github.com/stopbank/stopbank/warden/internal/queue"
)

// Task describes one execution that is asked for. The zero Task has normal priority and no deadline.
type Task struct {
	// Name appears in explanations; it may be empty. It groups nothing, so it need not be unique.
	Name string
	// ID tells one request from all others in explanations, where it is called request_id: some bytes, perhaps none. It groups
	// nothing. Explanations keep it for a while: cut what a client has made up.
	ID string
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

// classes is how many classes there are.
const classes = 4

// Class is the common priority that p counts as where only few can be told apart, as in metrics: the highest of the four that is not above
// it. Whatever is below Normal counts as Background.
func (p Priority) Class() Priority {
	return [classes]Priority{Background, Normal, High, Critical}[p.class()]
}

func (p Priority) class() int {
	switch {
	case p < Normal:
		return 0
	case p < High:
		return 1
	case p < Critical:
		return 2
	}
	return 3
}

// A deadline is the earlier of a task's own and its context's.
type deadline struct {
	at   time.Time
	from DeadlineSource
	due  time.Duration // by the limiter's clock; queue.Never: there is none
}

func (t Task) deadline(ctx context.Context, now time.Duration) deadline {
	d := deadline{t.Deadline, FromTask, queue.Never}
	if at, ok := ctx.Deadline(); ok && (t.Deadline.IsZero() || !t.Deadline.Before(at)) {
		d.at, d.from = at, FromContext
	}
	if d.at.IsZero() {
		return deadline{due: queue.Never}
	}
	// Not at.Sub(epoch): a deadline may have no monotonic reading, and the wall clock may have been set since.
	d.due = min(time.Until(d.at), queue.Never-1-now) + now
	return d
}

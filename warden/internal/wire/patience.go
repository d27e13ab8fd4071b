// A deadline that is a stranger's word.

package wire

import (
	"context"
	"fmt"
	"time"
)

// ErrPatience is the cause of a context that ended because its client waits no longer, by its own word.
var ErrPatience = fmt.Errorf("the client's own deadline has passed: %w", context.DeadlineExceeded)

// Patience is a context that ends, as if its client had gone away, when that client waits no longer: it is canceled. To end it by
// DeadlineExceeded would let anybody who says that he has a millisecond open the circuit breakers of what the request uses, and make
// the service look as fast as its clients are impatient. Its cause is [ErrPatience].
type Patience struct {
	context.Context
	due    time.Time
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// NewPatience returns a Patience that ends with its parent, and from Start on also at due. Stop must be called.
func NewPatience(parent context.Context, due time.Time) *Patience {
	ctx, cancel := context.WithCancelCause(parent)
	return &Patience{Context: ctx, due: due, cancel: cancel}
}

// Deadline is the client's.
func (p *Patience) Deadline() (time.Time, bool) { return p.due, true }

// Start begins to watch the time, once. Whoever waits before that for a place has the deadline to look at.
func (p *Patience) Start() {
	p.timer = time.AfterFunc(time.Until(p.due), func() { p.cancel(ErrPatience) })
}

// Stop frees what the context has taken, and ends it.
func (p *Patience) Stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
	p.cancel(nil)
}

// Sooner is whether due is before the deadline of ctx, if that has one.
func Sooner(due time.Time, ctx context.Context) bool {
	at, bounded := ctx.Deadline()
	return !due.IsZero() && (!bounded || due.Before(at))
}

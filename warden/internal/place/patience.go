// A deadline that is a stranger's word.

package place

import (
	"context"
	"fmt"
	"time"
)

// errPatience is the cause of a context that ended because its client waits no longer, by its own word.
var errPatience = fmt.Errorf("the client's own deadline has passed: %w", context.DeadlineExceeded)

// patience is a context that ends, as if its client had gone away, when that client waits no longer: it is canceled. To end it by
// DeadlineExceeded would let anybody who says that he has a millisecond open the circuit breakers of what the request uses, and make
// the service look as fast as its clients are impatient. Its cause is [errPatience].
type patience struct {
	context.Context
	due    time.Time
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// newPatience returns a patience that ends with its parent, and from start on also at due. stop must be called.
func newPatience(parent context.Context, due time.Time) *patience {
	ctx, cancel := context.WithCancelCause(parent)
	return &patience{Context: ctx, due: due, cancel: cancel}
}

// Deadline is the client's.
func (p *patience) Deadline() (time.Time, bool) { return p.due, true }

// start begins to watch the time, once. Whoever waits before that for a place has the deadline to look at.
func (p *patience) start() {
	p.timer = time.AfterFunc(time.Until(p.due), func() { p.cancel(errPatience) })
}

// stop frees what the context has taken, and ends it.
func (p *patience) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
	p.cancel(nil)
}

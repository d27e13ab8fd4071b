// A deadline that an untrusted client chose.

package slot

import (
	"context"
	"fmt"
	"time"
)

// errPatience is the cause of a context that ended at the client's own deadline.
var errPatience = fmt.Errorf("the client's own deadline has passed: %w", context.DeadlineExceeded)

// patience is a context that is canceled at the client's own deadline, as if the client had disconnected. DeadlineExceeded
// would let any client with a deadline of a millisecond open the circuit breakers of what the request uses, and make the
// service look as fast as its clients are impatient. Its cause is [errPatience].
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

// Deadline returns the client's deadline.
func (p *patience) Deadline() (time.Time, bool) { return p.due, true }

// start starts the timer, once. Before that, a wait for a slot observes Deadline.
func (p *patience) start() {
	p.timer = time.AfterFunc(time.Until(p.due), func() { p.cancel(errPatience) })
}

// stop ends the context and releases its resources.
func (p *patience) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
	p.cancel(nil)
}

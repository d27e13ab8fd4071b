// SPDX-License-Identifier: Apache-2.0

// A deadline that an untrusted client chose.

package slot

import (
	"context"
	"fmt"
	"time"
)

// errClientDeadline is the cause of a context that ended at the client's own deadline.
var errClientDeadline = fmt.Errorf("the client's own deadline has passed: %w", context.DeadlineExceeded)

// clientDeadline is a context that is canceled at the client's own deadline, as if the client had disconnected. DeadlineExceeded
// would let any client with a deadline of a millisecond open the circuit breakers of what the request uses, and make the
// service look as fast as its clients are impatient. Its cause is [errPatience].
type clientDeadline struct {
	context.Context
	due    time.Time
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// newClientDeadline returns a context that ends with its parent, and from start on also at due. stop must be called.
func newClientDeadline(parent context.Context, due time.Time) *clientDeadline {
	ctx, cancel := context.WithCancelCause(parent)
	return &clientDeadline{Context: ctx, due: due, cancel: cancel}
}

// Deadline returns the client's deadline.
func (p *clientDeadline) Deadline() (time.Time, bool) { return p.due, true }

// start starts the timer, once. Before that, a wait for a slot observes Deadline.
func (p *clientDeadline) start() {
	p.timer = time.AfterFunc(time.Until(p.due), func() { p.cancel(errClientDeadline) })
}

// stop ends the context and releases its resources.
func (p *clientDeadline) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
	p.cancel(nil)
}

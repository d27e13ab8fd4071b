// SPDX-License-Identifier: Apache-2.0

// Permits: holding a slot without a function that returns.

package bulkhead

import (
	"context"
	"errors"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Permit is one slot held by an adapter, for instance while the body of an HTTP response is read. It is free to copy and to
// release from any goroutine: all copies together release once. The zero Permit releases nothing.
type Permit struct {
	k      *call
	ctx    context.Context    // the context of the work
	cancel context.CancelFunc // nil: no Timeout
}

// Acquire waits for a slot as [Do] does, and returns a permit and the context of the work, which marks the slot as held and, if
// there is a Timeout, ends when that has passed or the permit is released; the Timeout is no Deadline of that context. Release the permit exactly once. The errors are
// those of Do that mean that fn was not called. There is no fallback but by [Compartment.RunFallback], and nobody interrupts
// the holder: it has to watch the context, whose cause (context.Cause) is a [*TimeoutError] once Timeout has passed.
func (c *Compartment) Acquire(ctx context.Context) (context.Context, Permit, error) {
	switch {
	case !c.exists():
		return ctx, Permit{}, c.unknownError()
	case ctx == nil:
		return ctx, Permit{}, invalidField("ctx", "nil", "a context")
	}
	one := new(struct { // allocated as one: a permit is kept anyway
		call
		own mark
	})
	k := &one.call
	k.mark = &one.own
	if err := c.begin(ctx, k); err != nil {
		c.observeRejection(ctx, err)
		return ctx, Permit{}, err
	}
	if k.within == 0 {
		return k.mark, Permit{k: k, ctx: k.mark}, nil
	}
	due := time.Now().Add(k.within)
	timeout := timelimit.New(k.mark, nil, timelimit.Service, due, k.within, k.timeout())
	timeout.Start()
	return timeout, Permit{k, timeout, timeout.Stop}, nil
}

// Without returns the same permit, by which a monitor counts d less as the execution time: the work only waited for its client.
func (p Permit) Without(d time.Duration) Permit {
	if p.k != nil {
		p.k.span = p.k.span.Without(d)
	}
	return p
}

// Span returns the work's execution, as a monitor sees it; the Permit ends it.
func (p Permit) Span() monitor.Span {
	if p.k == nil {
		return monitor.Span{}
	}
	return p.k.span
}

// Release gives the slot back and returns true to exactly one caller: the first. err is the result of the work, for the
// breaker and the statistics; nil: success. If Timeout has passed and err is context.DeadlineExceeded, both record a
// [*TimeoutError].
func (p Permit) Release(err error) bool {
	k := p.k
	if k == nil || !k.become(ended) {
		return false
	}
	return p.end(err)
}

// Discard is Release for work whose execution time says nothing about the compartment: a hijacked connection, or a stream. A
// monitor does not count it. If err is [context.Canceled], the work counts as canceled, whatever its context says.
func (p Permit) Discard(err error) bool {
	k := p.k
	if k == nil || !k.become(ended) {
		return false
	}
	k.span.Discard()
	if errors.Is(err, context.Canceled) {
		return p.finish(decision.OutcomeCanceled, err)
	}
	return p.end(err)
}

func (p Permit) end(err error) bool {
	out, err := p.k.classify(p.ctx, err)
	return p.finish(out, err)
}

func (p Permit) finish(out decision.Outcome, err error) bool {
	if p.cancel != nil {
		p.cancel()
	}
	p.k.end(err, out, err)
	return true
}

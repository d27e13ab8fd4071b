// Holding a place without a function that returns.

package bulkhead

import "context"

// Permit is one place held by an adapter, such as one for an HTTP response whose body is still being read. It is free to
// copy and to release from any goroutine: all copies together release once. The zero Permit releases nothing.
type Permit struct {
	k      *call
	ctx    context.Context    // the work's
	cancel context.CancelFunc // nil: there is no Timeout
}

// Acquire waits for a place as [Do] does, and returns a permit and the context to go on with: it knows that the
// compartment has been entered, and ends when Timeout has passed or the permit is released. Who gets a permit must
// release it. The errors are those of Do that mean that fn was not called. There is no fallback, and nobody is told a
// *TimeoutError in phase Running: who holds the place is to watch the context.
func (c *Compartment) Acquire(ctx context.Context) (context.Context, Permit, error) {
	switch {
	case !c.known():
		return ctx, Permit{}, c.refusal()
	case ctx == nil:
		return ctx, Permit{}, &InvalidError{"ctx", "nil", "a context"}
	}
	one := new(struct { // allocated as one: a permit is kept anyway
		call
		own mark
	})
	k := &one.call
	k.mark = &one.own
	if err := c.begin(ctx, k); err != nil {
		c.observeRefusal(ctx, err)
		return ctx, Permit{}, err
	}
	if c.part.config.Timeout == 0 {
		return k.mark, Permit{k: k, ctx: k.mark}, nil
	}
	timeout, cancel := context.WithTimeout(k.mark, c.part.config.Timeout)
	return timeout, Permit{k, timeout, cancel}, nil
}

// Release gives the place back and reports true to exactly one caller: the first. err is what came of the work, for the
// breaker and the statistics; nil: it succeeded. If Timeout has passed and err says so, both see a [*TimeoutError].
func (p Permit) Release(err error) bool {
	k := p.k
	if k == nil || !k.become(ended) {
		return false
	}
	out, err := k.judge(p.ctx, err)
	if p.cancel != nil {
		p.cancel()
	}
	k.end(err, out, err)
	return true
}

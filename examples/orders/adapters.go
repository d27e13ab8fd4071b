// A gate or a limiter as the Concurrency of a dispatcher.

package main

import (
	"context"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/warden/limiter"
)

// gated admits a handler if the gate has a free slot; otherwise the dispatcher tries again later.
type gated struct{ gate *admission.Gate }

func (g gated) Do(_ context.Context, run func() error) error { return g.gate.Do(run) }

// limited waits in the queue of the limiter.
type limited struct {
	limiter *limiter.Limiter
	task    limiter.Task
}

func (l limited) Do(ctx context.Context, run func() error) error {
	_, err := limiter.Do(ctx, l.limiter, l.task, func(context.Context) (any, error) { return nil, run() })
	return err
}

var (
	_ dispatch.Concurrency = gated{}
	_ dispatch.Concurrency = limited{}
)

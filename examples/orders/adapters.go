// A gate or a limiter as the Concurrency of a dispatcher.

package main

import (
	"context"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/warden/limiter"
)

// gated admits a handler if the gate has a free slot; otherwise the dispatcher tries again later.
func gated(gate *admission.Gate) func(context.Context, func() error) error {
	return func(_ context.Context, run func() error) error { return gate.Do(run) }
}

// limited waits in the queue of the limiter.
func limited(l *limiter.Limiter, task limiter.Task) func(context.Context, func() error) error {
	return func(ctx context.Context, run func() error) error {
		_, err := limiter.Do(ctx, l, task, func(context.Context) (any, error) { return nil, run() })
		return err
	}
}

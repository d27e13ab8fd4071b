// SPDX-License-Identifier: Apache-2.0

// Faults that neither the rules nor the runbook were written for. They are played only if they are named.
package main

import (
	"context"
	"sync"
	"time"

	"github.com/stopbank/stopbank/internal/system/deploy"
)

// heldout returns them. What is right was decided before their first game, from the list of the runbook's names alone.
func heldout() []fault {
	return []fault{
		{
			name: "panicking", about: "a release whose checkout writes to a nil map: each one ends in a panic", ill: "checkout=panics",
			named: []string{"panics"}, want: []string{"instance"},
		},
		{
			name: "leaked-connections", about: "one route does not give its connection back, and all routes share the pool", ill: "admin=leaks",
			args: []string{"-way", "pool"}, load: steady(deploy.Load{3, 5, 1, 2}),
			named: []string{"connection leak"}, want: []string{"instance"},
		},
		{
			name: "full-minute", about: "clients with a timer: 200 requests at once, at each full minute, for a route with 10 slots",
			args: []string{"-fault", "admin=300ms"}, hook: fullMinute,
			named: []string{"overload", "too few slots"}, want: []string{"compartment=admin"},
		},
		{
			name: "engine-paused", about: "the host of the engine stands still: its connections stay open, and nothing answers",
			hook: pauseEngine, named: []string{"engine down"},
		},
		{
			name: "refused", about: "what the handlers of one worker call refuses at once: each of its records fails", task: "handlers=fail",
			named: []string{"failing handlers", "failing dependency"}, want: []string{"instance"},
		},
	}
}

// fullMinute asks 200 times at once, at each full minute.
func fullMinute(ctx context.Context, g *game) error {
	client := clientOf(3 * time.Second)
	defer client.CloseIdleConnections()
	for deploy.Sleep(ctx, time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))) == nil {
		var sent sync.WaitGroup
		for range 200 {
			sent.Go(func() { g.ask(ctx, client, "/admin/counts") })
		}
		sent.Wait()
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package leasepg

// This file gathers calls that are made side by side, so that they go to the database in one statement: a commit, or a round
// trip, for many costs little more than one for one.

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// maxAlone is how many callers there may be who never wait for each other: the server commits what they send together by itself.
	maxAlone = 16
	// maxFlights is how many statements are under way, when there are more callers, before calls gather.
	maxFlights = 4
	// maxGathered bounds the calls of one statement.
	maxGathered = 256
	// patience is how long a call that was sent alone counts as under way. It may wait for a row lock of somebody else's
	// transaction, which is no reason for other domains to wait. A statement with many never does.
	patience = 2 * time.Millisecond
)

// call is one of those that gather: what is asked for, and the answer.
type call[T any] struct {
	what   T
	flight *flight       // nil until it is sent; guarded by gatherer.mu
	done   chan struct{} // closed when it has been answered
	alone  bool          // it was not carried out with the others, and never will be: what is in the way shows when it is sent alone
	err    error
}

// flight is one statement with some calls.
type flight struct {
	members int                // callers that still wait for it; guarded by gatherer.mu
	cancel  context.CancelFunc // ends it, when nobody does
}

// gatherer holds calls back while enough statements are under way.
type gatherer[T any] struct {
	send func(context.Context, []*call[T]) // answers all of them, but for closing done

	mu      sync.Mutex // guards all below; never held while the database works
	callers int        // whose calls have not been answered
	flying  int        // statements
	waiting []*call[T]
}

// do has c answered: together with others, or by alone, which is called in this goroutine. Its ctx ends the wait, and the
// statement only when nobody else waits for it. sent says whether c may have been carried out when that was so.
func (g *gatherer[T]) do(ctx context.Context, c *call[T], alone func() error) (sent bool, err error) {
	g.mu.Lock()
	g.callers++
	defer g.answered()
	if g.flying < maxFlights || g.callers <= maxAlone && len(g.waiting) == 0 {
		g.flying++
		g.mu.Unlock()
		over := time.AfterFunc(patience, g.land)
		defer func() {
			if over.Stop() {
				g.land()
			}
		}()
		return true, alone()
	}
	c.done = make(chan struct{})
	g.waiting = append(g.waiting, c)
	g.mu.Unlock()
	select {
	case <-c.done:
		if c.alone {
			return true, alone()
		}
		return true, c.err
	case <-ctx.Done():
		return g.leave(c), ctx.Err()
	}
}

// answered counts a caller no longer.
func (g *gatherer[T]) answered() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.callers--
}

// leave says that nobody waits for c any more, and whether it was sent.
func (g *gatherer[T]) leave(c *call[T]) (sent bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.flight == nil {
		g.waiting = slices.DeleteFunc(g.waiting, func(other *call[T]) bool { return other == c })
		return false
	}
	if c.flight.members--; c.flight.members == 0 {
		c.flight.cancel()
	}
	return true
}

// land ends a statement; what has gathered takes its place.
func (g *gatherer[T]) land() {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), maxGathered)
	if n == 0 || g.flying > maxFlights {
		g.flying--
		return
	}
	batch := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	ctx, cancel := context.WithCancel(context.Background())
	f := &flight{n, cancel}
	for _, c := range batch {
		c.flight = f
	}
	go func() {
		defer g.land()
		defer cancel()
		g.send(ctx, batch)
		for _, c := range batch {
			close(c.done)
		}
	}()
}

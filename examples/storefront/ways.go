// Two ways to share connections among routes: one pool for all, or a compartment with its own pool for each.
package main

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/sony/gobreaker/v2"

	"github.com/stopbank/stopbank/warden/bulkhead"
)

// A fallback replaces a query that was rejected or failed.
type fallback func(ctx context.Context, cause error) (any, error)

// A way decides which connections a route may use, and which queries are rejected.
type way interface {
	// do runs q on a connection. Its errors are those of q, errPoolTimeout and those of package bulkhead. A way may call
	// instead, which may be nil, after a rejection or a failure.
	do(ctx context.Context, r route, q query, instead fallback) (any, error)
	// inUse shows the connections in use and the limit of each pool.
	inUse() string
	// close waits for running queries.
	close() error
}

// sharedPool is the usual setup: all routes compete for the connections of one pool.
type sharedPool struct{ pool *pool }

func openShared(ctx context.Context, st store, sc scenario) (way, error) {
	p, err := openPool(ctx, st, sc.total(), sc.total(), sc.acquire)
	if err != nil {
		return nil, err
	}
	return sharedPool{p}, nil
}

func (w sharedPool) do(ctx context.Context, _ route, q query, _ fallback) (any, error) {
	return w.pool.with(ctx, q)
}

func (w sharedPool) inUse() string { return w.pool.inUse() }
func (w sharedPool) close() error  { return w.pool.close() }

// compartments gives each route a compartment and a pool of the compartment's Max connections, so that a call with a slot
// never waits for a connection. The set limits the connections in use by all pools together.
type compartments struct {
	set   *bulkhead.Set
	pools [routes]*pool

	mu sync.Mutex // held during a resize
}

func openCompartments(ctx context.Context, st store, sc scenario, watch bulkhead.Observer) (_ *compartments, err error) {
	w := &compartments{}
	if w.set, err = bulkhead.New(bulkhead.Config{Total: sc.total(), Observer: watch, Compartments: sc.compartments(reportsBreaker(sc))}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	for r, share := range w.set.Plan().Compartments {
		if w.pools[r], err = openPool(ctx, st, share.Max, share.Guaranteed, sc.acquire); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// reportsBreaker opens after ten consecutive failures of reports, then lets single probes through until one succeeds.
func reportsBreaker(sc scenario) bulkhead.Breaker {
	return gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name:        "analytics",
		Timeout:     2 * sc.acquire,
		ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= 10 },
		IsExcluded:  bulkhead.IsExcluded,
	})
}

func (w *compartments) do(ctx context.Context, r route, q query, instead fallback) (any, error) {
	c := w.set.Compartment(r.String())
	fn := func(ctx context.Context) (any, error) { return w.pools[r].with(ctx, q) }
	if instead == nil {
		return bulkhead.Do(ctx, c, fn)
	}
	return bulkhead.DoOr(ctx, c, fn, instead)
}

// resize applies a new plan to the set and the pools. A pool is never smaller than its compartment: calls with a slot would
// otherwise wait for a connection, in a queue that no metric shows.
func (w *compartments) resize(next bulkhead.Plan) (revision uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.set.Plan()
	for r, share := range before.Compartments {
		for _, target := range next.Compartments {
			if target.Name == share.Name {
				w.pools[r].db.SetMaxOpenConns(max(share.Max, target.Max, target.Guaranteed))
			}
		}
	}
	revision, err = w.set.Resize(next)
	for r, share := range w.set.Plan().Compartments {
		w.pools[r].resize(share.Max, share.Guaranteed)
	}
	return revision, err
}

func (w *compartments) inUse() string {
	var counts []string
	for _, p := range w.pools {
		counts = append(counts, p.inUse())
	}
	return strings.Join(counts, "  ")
}

func (w *compartments) close() error {
	var err error
	for _, p := range w.pools {
		if p != nil {
			err = errors.Join(err, p.close())
		}
	}
	return err
}

// The ways to share the connections between four routes: one pool for all, or a compartment and a pool for each.
package main

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/sony/gobreaker/v2"

	"github.com/stopbank/stopbank/warden/bulkhead"
)

// A fallback answers instead of a query that was rejected or failed. Its error means that it cannot either.
type fallback func(ctx context.Context, cause error) (any, error)

// A way decides which connections a route may use, and whether a request may start at all.
type way interface {
	// do runs q on a connection, or returns why it did not: an error of package bulkhead or errPoolTimeout, or what q
	// itself returned. A way may ask instead, which may be nil, for the answer.
	do(ctx context.Context, r route, q query, instead fallback) (any, error)
	// inUse shows how many connections of how many are taken, pool by pool.
	inUse() string
	// close waits for what still runs.
	close() error
}

// sharedPool is what most services have: whoever comes takes a connection.
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

// compartments gives each route a compartment, and a pool as wide as what the compartment may have at most: whoever has a
// place never waits for a connection. The sum of the connections in use is bounded by the set.
type compartments struct {
	set   *bulkhead.Set
	pools [routes]*pool

	mu sync.Mutex // one resize at a time; held while the set and the pools are told
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

// reportsBreaker stops asking for reports while they only time out: ten of them in a row, and then one at a time now and
// then, until one is answered.
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

// resize shares the places anew, and the connections with them. A pool is never smaller than its compartment, or those who
// have a place would wait for a connection where nobody sees them.
func (w *compartments) resize(next bulkhead.Plan) (revision uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.set.Plan()
	for r, share := range before.Compartments {
		for _, then := range next.Compartments {
			if then.Name == share.Name {
				w.pools[r].db.SetMaxOpenConns(max(share.Max, then.Max, then.Guaranteed))
			}
		}
	}
	revision, err = w.set.Resize(next)
	for r, share := range w.set.Plan().Compartments {
		w.pools[r].size(share.Max, share.Guaranteed)
	}
	return revision, err
}

func (w *compartments) inUse() string {
	var each []string
	for _, p := range w.pools {
		each = append(each, p.inUse())
	}
	return strings.Join(each, "  ")
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

// The two ways to share 100 connections between four routes: one pool for all, or a gate and a pool for each.
package main

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/stopbank/stopbank/admission"
)

// A way decides which connections a route may use, and whether a request may start at all.
type way interface {
	// do runs query on a connection, or returns why it did not: an error that is admission.ErrRejected or
	// errPoolTimeout, or what query itself returned.
	do(ctx context.Context, r route, query func(*sql.Conn) error) error
	// inUse shows how many connections of how many are taken, pool by pool.
	inUse() string
	close() error
}

type openWay func(context.Context, *store, scenario) (way, error)

// sharedPool is what most services have: whoever comes takes a connection.
type sharedPool struct{ pool *pool }

func openShared(ctx context.Context, st *store, sc scenario) (way, error) {
	p, err := openPool(ctx, st, sc.total(), sc.acquire)
	if err != nil {
		return nil, err
	}
	return sharedPool{p}, nil
}

func (w sharedPool) do(ctx context.Context, _ route, query func(*sql.Conn) error) error {
	return w.pool.with(ctx, query)
}

func (w sharedPool) inUse() string { return w.pool.inUse() }
func (w sharedPool) close() error  { return w.pool.db.Close() }

// isolated gives each route a pool of its own and a gate in front of it. The gate is as wide as the pool, so an
// admitted request never waits for a connection, and one too many is told at once.
type isolated [routes]struct {
	gate *admission.Gate
	pool *pool
}

func openIsolated(ctx context.Context, st *store, sc scenario) (_ way, err error) {
	w := &isolated{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	for r := range routes {
		part := &w[r]
		if part.gate, err = admission.New(admission.Config{Name: r.String(), Limit: sc.conns[r]}); err != nil {
			return nil, err
		}
		if part.pool, err = openPool(ctx, st, sc.conns[r], sc.acquire); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *isolated) do(ctx context.Context, r route, query func(*sql.Conn) error) error {
	return w[r].gate.Do(func() error { return w[r].pool.with(ctx, query) })
}

func (w *isolated) inUse() string {
	var each []string
	for r := range routes {
		each = append(each, w[r].pool.inUse())
	}
	return strings.Join(each, "  ")
}

func (w *isolated) close() error {
	var err error
	for r := range routes {
		if p := w[r].pool; p != nil {
			err = errors.Join(err, p.db.Close())
		}
	}
	return err
}

// A connection pool with an acquire timeout.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

var errPoolTimeout = errors.New("timed out waiting for a database connection")

// A query uses a connection. It may keep running after its caller has timed out.
type query func(context.Context, *sql.Conn) (any, error)

// A pool is a database/sql pool.
type pool struct {
	db      *sql.DB
	acquire time.Duration
	users   sync.WaitGroup // calls of with
}

// openPool opens all idle connections in advance, so that requests do not wait for new ones.
func openPool(ctx context.Context, st store, limit, idle int, acquire time.Duration) (_ *pool, err error) {
	p := &pool{db: sql.OpenDB(st), acquire: acquire}
	p.resize(limit, idle)
	defer func() {
		if err != nil {
			err = errors.Join(err, p.db.Close())
		}
	}()
	held := make([]*sql.Conn, 0, idle)
	defer func() {
		for _, c := range held {
			err = errors.Join(err, c.Close())
		}
	}()
	for range idle {
		c, err := p.db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		held = append(held, c)
	}
	return p, nil
}

// resize sets the limits of open and of idle connections.
func (p *pool) resize(limit, idle int) {
	p.db.SetMaxOpenConns(limit)
	p.db.SetMaxIdleConns(idle)
}

// with runs q on a connection of the pool. If none becomes free within the acquire timeout, it returns errPoolTimeout.
func (p *pool) with(ctx context.Context, q query) (any, error) {
	p.users.Add(1)
	defer p.users.Done()
	wait, cancel := context.WithTimeoutCause(ctx, p.acquire, errPoolTimeout)
	conn, err := p.db.Conn(wait)
	cause := context.Cause(wait)
	cancel()
	if err != nil {
		if errors.Is(cause, errPoolTimeout) {
			return nil, errPoolTimeout
		}
		return nil, err
	}
	answer, err := q(ctx, conn)
	return answer, errors.Join(err, conn.Close())
}

// close waits for all queries, abandoned ones included. No call of with may start any more.
func (p *pool) close() error {
	p.users.Wait()
	return p.db.Close()
}

func (p *pool) inUse() string {
	s := p.db.Stats()
	return fmt.Sprintf("%d/%d", s.InUse, s.MaxOpenConnections)
}

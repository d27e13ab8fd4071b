// A pool of connections whose users wait a bounded time for one.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

var errPoolTimeout = errors.New("no database connection became free in time")

// A query does something on a connection. It may run on after whoever asked has been told that time is up.
type query func(context.Context, *sql.Conn) (any, error)

// A pool is a database/sql pool.
type pool struct {
	db      *sql.DB
	acquire time.Duration
	users   sync.WaitGroup // those in with
}

// openPool opens as many connections as it keeps idle at once, so that no request pays for opening one.
func openPool(ctx context.Context, st store, most, idle int, acquire time.Duration) (_ *pool, err error) {
	p := &pool{db: sql.OpenDB(st), acquire: acquire}
	p.size(most, idle)
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

// size bounds how many connections there are and how many of them stay open while nobody uses them.
func (p *pool) size(most, idle int) {
	p.db.SetMaxOpenConns(most)
	p.db.SetMaxIdleConns(idle)
}

// with runs q on a connection of the pool and gives it back when q has returned. It waits for a free
// connection for the pool's acquire time at most, then returns errPoolTimeout.
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

// close waits for all users, also for those that nobody waits for any more. Nobody may come now.
func (p *pool) close() error {
	p.users.Wait()
	return p.db.Close()
}

func (p *pool) inUse() string {
	s := p.db.Stats()
	return fmt.Sprintf("%d/%d", s.InUse, s.MaxOpenConnections)
}

// SPDX-License-Identifier: Apache-2.0

// Package pool lets a warden ask the pools of connections that a program has: database/sql, pgxpool, or anything that counts who
// waits; wardenhttp.Pool has those of an http.Transport. Put the result into warden.Config.Pools; docs/control.md says what it
// does there.
//
// A pool reports how much of it is in use, and how much there is. So its overload shows at once and by name; execution times
// alone show it late, and may have another cause.
package pool

import (
	"database/sql"
	"sync/atomic"

	"github.com/stopbank/stopbank/warden/monitor"
)

// SQL is the pool of connections of db, to which SetMaxOpenConns must have given a bound: without one no limit follows it.
// While a bound that was lowered is exceeded, its readings are invalid and not used. A nil db is an error of warden.New.
func SQL(name string, db *sql.DB) monitor.Pool {
	if db == nil {
		return monitor.Pool{Name: name}
	}
	return monitor.Pool{Name: name, Stats: func() monitor.PoolStats {
		s := db.Stats()
		return monitor.PoolStats{InUse: s.InUse, Max: s.MaxOpenConnections}
	}}
}

// Pgx is the pool of a *pgxpool.Pool db: Pgx("orders-db", db.Stat). A nil function is an error of warden.New.
//
// A connection is in use from when the pool has picked it, before its ping and BeforeAcquire or PrepareConn, until AfterRelease
// has returned or it is closed. One that is being opened is not, though it takes a place: the pool opens some that no task waits
// for (MinConns). So a pool that is just filling up is reported as having room. At each HealthCheckPeriod the pool takes the idle
// ones, for microseconds.
func Pgx[S interface {
	AcquiredConns() int32
	MaxConns() int32
}](name string, stat func() S) monitor.Pool {
	if stat == nil {
		return monitor.Pool{Name: name}
	}
	return monitor.Pool{Name: name, Stats: func() monitor.PoolStats {
		s := stat()
		return monitor.PoolStats{InUse: int(s.AcquiredConns()), Max: int(s.MaxConns())}
	}}
}

// Gauge counts who waits for something that does not count them itself: a semaphore, a rate limit, a connection of a client
// library. The zero Gauge is empty. Its methods are safe for concurrent use and never block; Enter and Leave allocate nothing.
// It must not be copied.
//
// Only executions that hold a slot of the warden may be counted: the limit follows the number.
type Gauge struct{ waiting atomic.Int64 }

// Enter counts one more that waits. Each Enter needs one Leave, whatever happens.
func (g *Gauge) Enter() { g.waiting.Add(1) }

// Leave counts one less. If there were more of them than of Enter, the reading is invalid and not used.
func (g *Gauge) Leave() { g.waiting.Add(-1) }

// Pool is the gauge as a pool.
func (g *Gauge) Pool(name string) monitor.Pool {
	if g == nil {
		return monitor.Pool{Name: name}
	}
	return monitor.Pool{Name: name, Stats: func() monitor.PoolStats {
		return monitor.PoolStats{Waiting: monitor.Reading{Value: float64(g.waiting.Load()), OK: true}}
	}}
}

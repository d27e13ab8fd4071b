// The database: one SQLite file in a temporary folder, pools of connections to it, and a query that really holds one.
package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"modernc.org/sqlite"
)

var (
	errPoolTimeout = errors.New("no database connection became free in time")
	errWoken       = errors.New("sleep_ms: the store is closing")
)

// A store is the file and the way to open connections to it. Its own driver value carries the function sleep_ms,
// so that two stores in one process share nothing.
type store struct {
	dir    string
	drv    *sqlite.Driver
	waking chan struct{} // closed by wake
	once   sync.Once
}

// openStore creates the file with its tables and rows. close removes it.
func openStore(ctx context.Context) (_ *store, err error) {
	dir, err := os.MkdirTemp("", "storefront-")
	if err != nil {
		return nil, err
	}
	st := &store{dir: dir, drv: &sqlite.Driver{}, waking: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, st.close())
		}
	}()
	if err := st.drv.RegisterScalarFunction("sleep_ms", 1, st.sleep); err != nil {
		return nil, err
	}
	db := sql.OpenDB(st)
	_, err = db.ExecContext(ctx, schema)
	return st, errors.Join(err, db.Close())
}

// sleep is the SQL function sleep_ms(n): it blocks for n milliseconds and returns n. SQLite cannot interrupt a
// function that it called, so neither the end of the query's context nor the client's leaving gives the
// connection back early: it is held for the whole time, as by a driver that does not cancel on the server.
// Only wake ends it before its time, with an error.
func (st *store) sleep(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	n, isInt := args[0].(int64)
	if !isInt || n < 0 {
		return nil, fmt.Errorf("sleep_ms(%v): want a number of milliseconds, 0 or more", args[0])
	}
	timer := time.NewTimer(time.Duration(n) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return n, nil
	case <-st.waking:
		return nil, errWoken
	}
}

// wake ends every sleep_ms, running and future, so that a server can shut down without waiting for slow queries.
func (st *store) wake() { st.once.Do(func() { close(st.waking) }) }

// close removes the file; the pools over it are closed before.
func (st *store) close() error {
	st.wake()
	return os.RemoveAll(st.dir)
}

// Connect and Driver make the store a driver.Connector.
// WAL lets readers and a writer go on side by side; two writers take turns, which is what busy_timeout is for.
// The file is thrown away, so nothing is synced: what is shown is the pool, not the disk.
func (st *store) Connect(context.Context) (driver.Conn, error) {
	q := url.Values{"_pragma": {"busy_timeout(1000)", "journal_mode(WAL)", "synchronous(OFF)"}}
	return st.drv.Open(filepath.Join(st.dir, "shop.db") + "?" + q.Encode())
}

func (st *store) Driver() driver.Driver { return st.drv }

// A pool is a database/sql pool whose users wait a bounded time for a connection.
type pool struct {
	db      *sql.DB
	acquire time.Duration
}

// openPool opens all its connections at once, so that no request pays for opening one.
func openPool(ctx context.Context, st *store, size int, acquire time.Duration) (_ *pool, err error) {
	p := &pool{db: sql.OpenDB(st), acquire: acquire}
	p.db.SetMaxOpenConns(size)
	p.db.SetMaxIdleConns(size)
	defer func() {
		if err != nil {
			err = errors.Join(err, p.db.Close())
		}
	}()
	held := make([]*sql.Conn, 0, size)
	defer func() {
		for _, c := range held {
			err = errors.Join(err, c.Close())
		}
	}()
	for range size {
		c, err := p.db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		held = append(held, c)
	}
	return p, nil
}

// with runs query on a connection of the pool and gives it back when query has returned. It waits for a free
// connection for the pool's acquire time at most, then returns errPoolTimeout.
func (p *pool) with(ctx context.Context, query func(*sql.Conn) error) error {
	wait, cancel := context.WithTimeoutCause(ctx, p.acquire, errPoolTimeout)
	conn, err := p.db.Conn(wait)
	cause := context.Cause(wait)
	cancel()
	if err != nil {
		if errors.Is(cause, errPoolTimeout) {
			return errPoolTimeout
		}
		return err
	}
	return errors.Join(query(conn), conn.Close())
}

func (p *pool) inUse() string {
	s := p.db.Stats()
	return fmt.Sprintf("%d/%d", s.InUse, s.MaxOpenConnections)
}

const schema = `
CREATE TABLE users    (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE products (id INTEGER PRIMARY KEY, category TEXT NOT NULL, name TEXT NOT NULL, cents INTEGER NOT NULL);
CREATE TABLE orders   (id INTEGER PRIMARY KEY, product INTEGER NOT NULL REFERENCES products, cents INTEGER NOT NULL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 100)
	INSERT INTO users SELECT i, 'user ' || i FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 100)
	INSERT INTO products SELECT i, 'category ' || (i % 5), 'product ' || i, 100 + i FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 200)
	INSERT INTO orders SELECT i, p.id, p.cents FROM n JOIN products p ON p.id = 1 + i % 100;
`

// The database: one SQLite file in a temporary folder, and a function that makes a query hold its connection.
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
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"
)

// A store is a database and the way to open connections to it.
type store interface {
	driver.Connector
	// pause makes the database sleep in a query on conn. Nothing ends that before its time but wake: neither the end of
	// the context of whoever asked nor the client's leaving gives the connection back early, as with a driver that does
	// not cancel on the server.
	pause(ctx context.Context, conn *sql.Conn, d time.Duration) error
	// wake ends every pause, running and future, so that a server can shut down without waiting for slow queries.
	wake()
	// close removes all that the store has made; the pools over it are closed before.
	close() error
}

// openStore makes a SQLite file, or, for the URL of a PostgreSQL server, a schema there, with tables and rows.
func openStore(ctx context.Context, at string) (store, error) {
	switch scheme, _, _ := strings.Cut(at, "://"); {
	case at == "":
		return openSQLite(ctx)
	case scheme == "postgres" || scheme == "postgresql":
		return openPostgres(ctx, at)
	default:
		return nil, &InvalidError{databaseVariable, fmt.Sprintf("of scheme %q", scheme), "postgres://…, or nothing for an SQLite file"}
	}
}

var (
	errWoken       = errors.New("sleep_ms: the store is closing")
	errStoreClosed = errors.New("the store is closed")
)

// sqliteStore is the file. Its own driver value carries the function sleep_ms, so that two stores in one process share
// nothing.
type sqliteStore struct {
	dir    string
	drv    *sqlite.Driver
	waking chan struct{} // closed by wake
	once   sync.Once

	mu     sync.RWMutex // read: a connection is being opened
	closed bool
}

func openSQLite(ctx context.Context) (_ *sqliteStore, err error) {
	dir, err := os.MkdirTemp("", "storefront-")
	if err != nil {
		return nil, err
	}
	st := &sqliteStore{dir: dir, drv: &sqlite.Driver{}, waking: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, st.close())
		}
	}()
	if err := st.drv.RegisterScalarFunction("sleep_ms", 1, st.sleep); err != nil {
		return nil, err
	}
	db := sql.OpenDB(st)
	_, err = db.ExecContext(ctx, fmt.Sprintf(schema, "INTEGER PRIMARY KEY"))
	return st, errors.Join(err, db.Close())
}

// sleep is the SQL function sleep_ms(n): it blocks for n milliseconds and returns n. SQLite cannot interrupt a
// function that it called. Only wake ends it before its time, with an error.
func (st *sqliteStore) sleep(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
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

func (st *sqliteStore) pause(ctx context.Context, conn *sql.Conn, d time.Duration) error {
	var ms int64
	return conn.QueryRowContext(ctx, `SELECT sleep_ms($1)`, d.Milliseconds()).Scan(&ms)
}

func (st *sqliteStore) wake() { st.once.Do(func() { close(st.waking) }) }

// close waits for connections that are being opened: a pool that is closed does not, and they make files.
func (st *sqliteStore) close() error {
	st.wake()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	return os.RemoveAll(st.dir)
}

// Connect and Driver make the store a driver.Connector.
// WAL lets readers and a writer go on side by side; two writers take turns, which is what busy_timeout is for.
// The file is thrown away, so nothing is synced: what is shown is the pool, not the disk.
func (st *sqliteStore) Connect(context.Context) (driver.Conn, error) {
	st.mu.RLock()
	defer st.mu.RUnlock()
	if st.closed {
		return nil, errStoreClosed
	}
	q := url.Values{"_pragma": {"busy_timeout(1000)", "journal_mode(WAL)", "synchronous(OFF)"}}
	return st.drv.Open(filepath.Join(st.dir, "shop.db") + "?" + q.Encode())
}

func (st *sqliteStore) Driver() driver.Driver { return st.drv }

// schema is filled in with what a key that counts by itself is called.
const schema = `
CREATE TABLE users    (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE products (id INTEGER PRIMARY KEY, category TEXT NOT NULL, name TEXT NOT NULL, cents INTEGER NOT NULL);
CREATE TABLE orders   (id %s, product INTEGER NOT NULL REFERENCES products, cents INTEGER NOT NULL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 100)
	INSERT INTO users SELECT i, 'user ' || i FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 100)
	INSERT INTO products SELECT i, 'category ' || (i %% 5), 'product ' || i, 100 + i FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 200)
	INSERT INTO orders (product, cents) SELECT p.id, p.cents FROM n JOIN products p ON p.id = 1 + i %% 100;
`

// The database: an SQLite file in a temporary directory, with an SQL function that keeps its connection busy.
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

// A store is a database with tables and rows.
type store interface {
	driver.Connector
	// pause runs a query on conn that sleeps. The end of ctx does not cancel it, as with a driver that cannot cancel queries
	// on the server: only wake ends it early.
	pause(ctx context.Context, conn *sql.Conn, d time.Duration) error
	// wake ends all current and future pauses, so that a shutdown does not wait for slow queries.
	wake()
	// close removes the database; close all pools first.
	close() error
}

// openStore creates an SQLite file or, given the URL of a PostgreSQL server, a schema there.
func openStore(ctx context.Context, at string) (store, error) {
	switch scheme, _, _ := strings.Cut(at, "://"); {
	case at == "":
		return openSQLite(ctx)
	case scheme == "postgres" || scheme == "postgresql":
		return openPostgres(ctx, at)
	default:
		return nil, &InvalidError{databaseVariable, fmt.Sprintf("a URL with scheme %q", scheme), "postgres://…, or empty for an SQLite file"}
	}
}

var (
	errWoken       = errors.New("sleep_ms: the store is closing")
	errStoreClosed = errors.New("the store is closed")
)

// sqliteStore has its own driver value for the function sleep_ms, so that several stores in a process are independent.
type sqliteStore struct {
	dir    string
	drv    *sqlite.Driver
	waking chan struct{} // closed by wake
	once   sync.Once

	mu     sync.RWMutex // read-locked while a connection is opened
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

// sleep is the SQL function sleep_ms(n): it blocks for n milliseconds and returns n. SQLite cannot interrupt a function; wake
// makes it return an error early.
func (st *sqliteStore) sleep(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	n, isInt := args[0].(int64)
	if !isInt || n < 0 {
		return nil, fmt.Errorf("sleep_ms(%v): want a non-negative integer", args[0])
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

// close waits for connections that are being opened, because they create files; closing a pool does not wait for them.
func (st *sqliteStore) close() error {
	st.wake()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	return os.RemoveAll(st.dir)
}

// Connect implements driver.Connector. In WAL mode readers and one writer run concurrently; busy_timeout makes a second
// writer wait. The file is temporary, so nothing is synced to disk.
func (st *sqliteStore) Connect(context.Context) (driver.Conn, error) {
	st.mu.RLock()
	defer st.mu.RUnlock()
	if st.closed {
		return nil, errStoreClosed
	}
	q := url.Values{"_pragma": {"busy_timeout(1000)", "journal_mode(WAL)", "synchronous(OFF)"}}
	return st.drv.Open(filepath.Join(st.dir, "shop.db") + "?" + q.Encode())
}

// Driver implements driver.Connector.
func (st *sqliteStore) Driver() driver.Driver { return st.drv }

// schema is a format for the type of an auto-increment key.
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

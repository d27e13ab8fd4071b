// The two databases: a private PostgreSQL through pgxpool, and SQLite through database/sql.

package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"modernc.org/sqlite"

	"github.com/stopbank/stopbank/internal/pgtest"
	"github.com/stopbank/stopbank/warden/pool"
)

// openPostgres is ten connections; each query takes 20 ms.
func openPostgres(ctx context.Context) (*database, error) {
	server, err := pgtest.Open(ctx, false)
	if err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(server.URL())
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 10
	db, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		_ = server.Close()
		return nil, err
	}
	return &database{
		query: func(ctx context.Context) error {
			_, err := db.Exec(ctx, "SELECT pg_sleep(0.02)")
			return err
		},
		pool: pool.Pgx("orders-db", db.Stat), connections: 10,
		close: func() {
			db.Close()
			_ = server.Close()
		},
	}, nil
}

// withSleep gives SQLite what PostgreSQL calls pg_sleep, in milliseconds.
var withSleep = sync.OnceValue(func() error {
	return sqlite.RegisterScalarFunction("sleep_ms", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		ms, _ := args[0].(int64)
		time.Sleep(time.Duration(ms) * time.Millisecond)
		return ms, nil
	})
})

// openSQLite is one connection, as a file that is written has; each query takes 20 ms.
func openSQLite(ctx context.Context) (*database, error) {
	if err := withSleep(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pool")
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "orders.db"))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return &database{
		query: func(ctx context.Context) error {
			_, err := db.ExecContext(ctx, "SELECT sleep_ms(20)")
			return err
		},
		pool: pool.SQL("orders-db", db), connections: 1,
		close: func() {
			_ = db.Close()
			_ = os.RemoveAll(dir)
		},
	}, ctx.Err()
}

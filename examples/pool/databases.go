// The two databases: a private PostgreSQL through pgxpool, and SQLite through database/sql.

package main

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite" // the driver

	"github.com/stopbank/stopbank/lease/leasepg/pgtest"
	"github.com/stopbank/stopbank/warden/pool"
)

// postgres is ten connections, each query takes 20 ms.
func postgres(ctx context.Context) (*database, error) {
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

// sqlite is one connection, as a file that is written has; each query counts for some milliseconds.
func sqlite(ctx context.Context) (*database, error) {
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
			var n int
			return db.QueryRowContext(ctx, "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c WHERE n < 30000) SELECT max(n) FROM c").Scan(&n)
		},
		pool: pool.SQL("orders-db", db), connections: 1,
		close: func() {
			_ = db.Close()
			_ = os.RemoveAll(dir)
		},
	}, ctx.Err()
}

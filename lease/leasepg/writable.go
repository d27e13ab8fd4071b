// SPDX-License-Identifier: Apache-2.0

package leasepg

// A session that only reads is not used again: after a failover it leads to a demoted primary, or to a standby that a name still led
// to, and the pool would keep it until its lifetime is over, which is an hour by default. The next session may find a server that
// writes; target_session_attrs=read-write in the connection's URL says that it must.

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// readOnly is the code of the error of a write in a session that only reads.
const readOnly = "25006"

// release gives a connection back to its pool after a write with this result, or closes it.
func release(conn *pgxpool.Conn, err error) {
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == readOnly {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Conn().Close(ctx) // the pool does not keep it then
	}
	conn.Release()
}

// exec is the pool's Exec, for a write.
func exec(ctx context.Context, pool *pgxpool.Pool, sql string, args ...any) (done pgconn.CommandTag, err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return done, err
	}
	defer func() { release(conn, err) }()
	return conn.Exec(ctx, sql, args...)
}

// queryRow is the pool's QueryRow, for a write. The row's Scan gives the connection back.
func queryRow(ctx context.Context, pool *pgxpool.Pool, sql string, args ...any) pgx.Row {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return noRow{err}
	}
	return written{conn.QueryRow(ctx, sql, args...), conn}
}

type noRow struct{ err error }

func (r noRow) Scan(...any) error { return r.err }

type written struct {
	pgx.Row
	conn *pgxpool.Conn
}

func (r written) Scan(to ...any) (err error) {
	defer func() { release(r.conn, err) }()
	return r.Row.Scan(to...)
}

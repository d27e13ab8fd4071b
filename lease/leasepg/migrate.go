// SPDX-License-Identifier: Apache-2.0

package leasepg

// This file is the schema: its versions, how a database gets to the newest, and how New finds out.

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
)

// migrations are carried out in the order of their names. Those that were ever released are never edited.
//
//go:embed migrations/*.sql
var migrations embed.FS

// migrating is the advisory lock under which the schema changes: the first eight bytes of "stopbank".
const migrating = 0x73746f7062616e6b

// Migrate brings the schema `stopbank` to this package's version, in one transaction: all of it happens or nothing. It
// leaves a database of that version as it is, and of several concurrent callers one does the work.
//
// It needs the right to create a schema, and does not change one that belongs to another role. The role that runs a ledger needs
// less: see Rights in the package comment.
//
// It blocks until the database has answered. Error: *lease.InvalidError for a schema newer than this package or of another
// role, and for a nil argument; or the database's.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	switch {
	case ctx == nil:
		return noContext()
	case pool == nil:
		return &lease.InvalidError{Field: "pool", Value: "nil", Allowed: "a pool"}
	}
	return migrate(ctx, pool, migrations)
}

func migrate(ctx context.Context, pool *pgxpool.Pool, files fs.FS) error {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrating)); err != nil {
			return fmt.Errorf("leasepg: migrate: %w", err)
		}
		foreign, err := foreignSchema(ctx, tx)
		if err != nil {
			return err
		}
		// Of a schema of somebody else only a table is read, without rules for its rows: that runs nothing.
		var there bool
		if err := tx.QueryRow(ctx, "SELECT count(*) > 0 FROM pg_class WHERE oid = to_regclass('stopbank.lease_schema') "+
			"AND ($1 OR relkind = 'r' AND NOT relrowsecurity)", foreign == nil).Scan(&there); err != nil {
			return fmt.Errorf("leasepg: migrate: %w", err)
		}
		var found int
		if there {
			if err := tx.QueryRow(ctx, "SELECT version FROM stopbank.lease_schema").Scan(&found); err != nil {
				return fmt.Errorf("leasepg: migrate: %w", err)
			}
		}
		if found > len(names) {
			return schemaError(found, len(names))
		}
		if found == len(names) {
			return nil
		}
		if foreign != nil {
			return foreign
		}
		for _, name := range names[found:] {
			sql, err := fs.ReadFile(files, name)
			if err != nil {
				return err
			}
			// A file holds several statements, which only the simple protocol takes at once.
			if err := tx.Conn().PgConn().Exec(ctx, string(sql)).Close(); err != nil {
				return fmt.Errorf("leasepg: %s: %w", name, err)
			}
		}
		if _, err := tx.Exec(ctx, "UPDATE stopbank.lease_schema SET version = $1", len(names)); err != nil {
			return fmt.Errorf("leasepg: migrate: %w", err)
		}
		return nil
	})
}

// foreignSchema returns why the schema must not be changed if it belongs to somebody else, whose views and functions would run with
// the rights of the role that migrates. A superuser is a member of every role, so of one only what it owns itself is its own.
func foreignSchema(ctx context.Context, tx pgx.Tx) (foreign *lease.InvalidError, err error) {
	var owner string
	var own bool
	err = tx.QueryRow(ctx, `SELECT n.nspowner::regrole::text, n.nspowner = me.oid OR NOT me.rolsuper AND pg_has_role(n.nspowner, 'MEMBER')
		FROM pg_namespace n, pg_roles me WHERE n.nspname = 'stopbank' AND me.rolname = current_user`).Scan(&owner, &own)
	switch {
	case errors.Is(err, pgx.ErrNoRows), err == nil && own:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("leasepg: migrate: %w", err)
	}
	return &lease.InvalidError{
		Field: "leasepg.schema: its owner", Value: owner, Allowed: "the role that migrates, or one that it is a member of",
	}, nil
}

// check asks for the schema's version, and for a setting without which a fence does not hold: with synchronous_commit off,
// PostgreSQL acknowledges a token that a crash makes it forget. It returns which database this is.
func check(ctx context.Context, pool *pgxpool.Pool) (id string, err error) {
	want, err := newest()
	if err != nil {
		return "", err
	}
	var found int
	var commit string
	// The version first: an older schema has no identity.
	err = pool.QueryRow(ctx, "SELECT version, current_setting('synchronous_commit') FROM stopbank.lease_schema").Scan(&found,
		&commit)
	switch {
	case absent(err):
		return "", schemaError(0, want)
	case err != nil:
		return "", fmt.Errorf("leasepg: the schema's version: %w", err)
	case found != want:
		return "", schemaError(found, want)
	case commit == "off":
		return "", settingError("synchronous_commit", commit, "anything else: off loses tokens that were granted")
	}
	if err := pool.QueryRow(ctx, "SELECT "+identity+" FROM stopbank.lease_schema").Scan(&id); err != nil {
		return "", fmt.Errorf("leasepg: the database's identity: %w", err)
	}
	return id, nil
}

// identity is an expression over lease_schema: which database this is. A copy in the same server has another oid, any other
// database another uuid.
const identity = `database::text || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())`

// absent: there is no schema.
func absent(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == undefinedTable || pgErr.Code == undefinedSchema || pgErr.Code == undefinedColumn)
}

// newest is the version that this package works with.
func newest() (int, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	return len(names), err
}

const (
	undefinedTable  = "42P01"
	undefinedColumn = "42703"
	undefinedSchema = "3F000"
)

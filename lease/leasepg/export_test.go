package leasepg

// This file opens to the tests what they cannot reach from outside.

import (
	"context"
	"io/fs"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The statements of List.
const (
	ListHeld  = listHeld
	ListReady = listReady
)

// MigrateFrom is Migrate with other files.
func MigrateFrom(ctx context.Context, pool *pgxpool.Pool, files fs.FS) error {
	return migrate(ctx, pool, files)
}

// Migrations are the files of Migrate.
func Migrations() fs.FS { return migrations }

// Failed is how Swap reports an error of its statement.
func Failed(err error) error { return failed(err) }

// Shares is how many of the free partitions a member takes, and how many of its own it gives back.
func Shares(counts map[uint32]int, me uint32, free int) (take, give int) {
	return view{counts: counts, me: me}.shares(free)
}

// SPDX-License-Identifier: Apache-2.0

package leasepg

// This file opens to the tests what they cannot reach from outside.

import (
	"context"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/journal"
)

// Listed is the statement of List.
const Listed = listed

// MigrateFrom is Migrate with other files.
func MigrateFrom(ctx context.Context, pool *pgxpool.Pool, files fs.FS) error {
	return migrate(ctx, pool, files)
}

// Migrations are the files of Migrate.
func Migrations() fs.FS { return migrations }

// Failed is how Swap reports an error of its statement.
func Failed(err error) error { return failed(err) }

// Horizon is what a process knows of the outbox, without a server.
type Horizon struct {
	h horizon
	s seen
}

// Look tells it of the greatest id drawn and of the writers that there were after that, and returns up to which id all is
// decided.
func (h *Horizon) Look(drawn int64, writers []string) (safe int64, held bool) {
	is := seen{drawn: drawn, safe: h.s.safe}
	h.h.advance(&is, writers, time.Unix(1, 0))
	h.s = is
	return is.safe, !is.held.IsZero()
}

// Looks is how often o has looked at the server.
func (o *Outbox) Looks() uint64 {
	_, begun := o.horizon.now()
	return begun
}

// Packed and Unpacked write headers down and read them.
func Packed(headers []dispatch.Header) []byte      { return packed(headers) }
func Unpacked(b []byte) ([]dispatch.Header, error) { return unpacked(b) }

// PartitionOf is the partition of a key among so many.
func PartitionOf(key string, partitions int) int32 {
	return (&Outbox{cfg: OutboxConfig{Partitions: partitions}}).partition(key)
}

// OpenJournal claims a ledger that is written per window.
func OpenJournal(ctx context.Context, pool *pgxpool.Pool, name string, fresh time.Duration, cfg lease.Config) (*journal.Ledger, error) {
	id, err := check(ctx, pool)
	if err != nil {
		return nil, err
	}
	return openJournal(ctx, &journalStore{pool: pool, ledger: name, identity: id}, fresh, cfg)
}

// JournalStore is the store of a ledger that is written per window.
func JournalStore(ctx context.Context, pool *pgxpool.Pool, name string) (journal.Store, error) {
	id, err := check(ctx, pool)
	return &journalStore{pool: pool, ledger: name, identity: id}, err
}

// AppendEntry is the statement of its Append.
const AppendEntry = appendEntry

// SPDX-License-Identifier: Apache-2.0

package leasepg

// This file keeps the journals of ledgers that are written per window.

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/journal"
)

const (
	claimJournal = `INSERT INTO stopbank.lease_journals AS j (ledger, claim, entries)
		VALUES ($1, extract(epoch FROM clock_timestamp())::bigint, 0) ON CONFLICT (ledger)
		DO UPDATE SET claim = greatest(j.claim + 1, extract(epoch FROM clock_timestamp())::bigint) RETURNING claim, entries`
	readJournal = `SELECT entry FROM stopbank.lease_entries WHERE ledger = $1 ORDER BY number`
	// The claim's row is locked until the entry is there, so a claim that comes later reads it.
	appendEntry = `WITH mine AS (
			UPDATE stopbank.lease_journals SET entries = $3 WHERE ledger = $1 AND claim = $2 AND entries = $3 - 1 RETURNING ledger
		) INSERT INTO stopbank.lease_entries (ledger, number, entry) SELECT ledger, $3, $4 FROM mine`
	askJournal  = `SELECT claim, entries FROM stopbank.lease_journals WHERE ledger = $1`
	trimJournal = `DELETE FROM stopbank.lease_entries WHERE ledger = $1 AND number < $2`

	// Two that fence one domain wait for each other, and so do a fence and a transaction that finishes a record.
	fence = `INSERT INTO stopbank.lease_finished AS f (ledger, domain, least) VALUES ($1, $2, $3) ON CONFLICT (ledger, domain)
		DO UPDATE SET least = greatest(f.least, excluded.least) RETURNING finished`
	finish = `INSERT INTO stopbank.lease_finished AS f (ledger, domain, least, finished) VALUES ($1, $2, $3, $4)
		ON CONFLICT (ledger, domain) DO UPDATE SET least = excluded.least, finished = excluded.finished
		WHERE f.least <= excluded.least`

	askLayout = `SELECT EXISTS (SELECT FROM stopbank.lease_domains WHERE ledger = $1),
		EXISTS (SELECT FROM stopbank.lease_journals WHERE ledger = $1)`

	// maxEntry keeps an entry far from the size at which PostgreSQL takes long for it.
	maxEntry = 8 << 20
)

// journalStore is a journal.Store and journal.Fencer.
type journalStore struct {
	pool     *pgxpool.Pool
	ledger   string
	identity string // of the database

	claim   int64
	entries int64 // the number of the last, as far as is known
}

var (
	_ journal.Store  = (*journalStore)(nil)
	_ journal.Fencer = (*journalStore)(nil)
)

// openJournal claims a ledger that is written per window.
func openJournal(ctx context.Context, s *journalStore, fresh time.Duration, cfg lease.Config) (*journal.Ledger, error) {
	if err := checkLayout(ctx, s.pool, s.ledger, true); err != nil {
		return nil, err
	}
	return journal.Open(ctx, journal.Config{Store: s, Name: s.ledger, Fresh: fresh, Ledger: cfg})
}

// checkLayout rejects a ledger of the other layout: neither reads what the other has written.
func checkLayout(ctx context.Context, pool *pgxpool.Pool, ledger string, inJournal bool) error {
	var domains, journals bool
	if err := pool.QueryRow(ctx, askLayout, ledger).Scan(&domains, &journals); err != nil {
		return fmt.Errorf("leasepg: ledger %s: %w", ledger, err)
	}
	if inJournal && domains || !inJournal && journals {
		return &lease.InvalidError{Field: "leasepg.GroupConfig.Journal", Value: inJournal,
			Allowed: fmt.Sprintf("%t, as the ledger %s was begun", !inJournal, strconv.Quote(ledger))}
	}
	return nil
}

func (s *journalStore) failed(call string, err error) error {
	return fmt.Errorf("leasepg: ledger %s: %s: %w", s.ledger, call, err)
}

// Claim implements journal.Store.
func (s *journalStore) Claim(ctx context.Context) (uint64, error) {
	if err := queryRow(ctx, s.pool, claimJournal, s.ledger).Scan(&s.claim, &s.entries); err != nil {
		return 0, s.failed("claim", err)
	}
	return uint64(s.claim), nil
}

// Read implements journal.Store.
func (s *journalStore) Read(ctx context.Context, take func(entry []byte) error) error {
	rows, _ := s.pool.Query(ctx, readJournal, s.ledger) // rows have the error as well
	var entry []byte
	var taken error
	_, err := pgx.ForEachRow(rows, []any{&entry}, func() error {
		taken = take(entry)
		return taken
	})
	if err != nil && taken == nil {
		return s.failed("read", err)
	}
	return err
}

var errEntries = errors.New("it has lost entries: it was put back")

// Append implements journal.Store.
func (s *journalStore) Append(ctx context.Context, entry []byte) (uint64, error) {
	for {
		number := s.entries + 1
		done, err := exec(ctx, s.pool, appendEntry, s.ledger, s.claim, number, entry)
		switch {
		case err != nil:
			return 0, s.failed("append", err)
		case done.RowsAffected() == 1:
			s.entries = number
			return uint64(number), nil
		}
		// Either another owner has claimed the ledger, or an entry is there whose reply was lost.
		var claim, entries int64
		switch err := s.pool.QueryRow(ctx, askJournal, s.ledger).Scan(&claim, &entries); {
		case errors.Is(err, pgx.ErrNoRows), err == nil && claim == s.claim && entries < s.entries:
			return 0, s.failed("append", errors.Join(journal.ErrClaimed, errEntries))
		case err != nil:
			return 0, s.failed("append", err)
		case claim != s.claim:
			return 0, s.failed("append", journal.ErrClaimed)
		}
		s.entries = entries
	}
}

// Trim implements journal.Store.
func (s *journalStore) Trim(ctx context.Context, below uint64) error {
	if _, err := exec(ctx, s.pool, trimJournal, s.ledger, int64(below)); err != nil {
		return s.failed("trim", err)
	}
	return nil
}

// Limit implements journal.Store.
func (s *journalStore) Limit() int { return maxEntry }

// Fence implements journal.Fencer.
func (s *journalStore) Fence(ctx context.Context, domain string, least uint64) (offset int64, ok bool, err error) {
	filed, _ := key(domain)
	var finished *int64
	if err := queryRow(ctx, s.pool, fence, s.ledger, filed, int64(least)).Scan(&finished); err != nil {
		return 0, false, s.failed("fence", err)
	}
	if finished != nil {
		return *finished, true, nil
	}
	return 0, false, nil
}

// finishIn is SucceedTx with a ledger that is written per window.
func finishIn(ctx context.Context, tx pgx.Tx, ledger *journal.Ledger, l lease.Lease) error {
	s, ok := ledger.Store().(*journalStore)
	if !ok {
		return &lease.InvalidError{Field: "ledger", Value: fmt.Sprintf("in a %T", ledger.Store()),
			Allowed: "a ledger in a store of leasepg"}
	}
	want, err := newest()
	if err != nil {
		return err
	}
	if err := ledger.Finishing(l); err != nil {
		return err
	}
	filed, _ := key(l.Domain)
	var schema int
	var id string
	var finished int64
	batch := new(pgx.Batch)
	batch.Queue("SELECT version, " + identity + " FROM stopbank.lease_schema").
		QueryRow(func(row pgx.Row) error { return row.Scan(&schema, &id) })
	batch.Queue(finish, s.ledger, filed, int64(l.Token), l.Offset).Exec(func(done pgconn.CommandTag) error {
		finished = done.RowsAffected()
		return nil
	})
	switch err := tx.SendBatch(ctx, batch).Close(); {
	case err != nil:
		return fmt.Errorf("%w: %w", durable.ErrStore, transaction("succeed", err))
	case schema != want:
		return schemaError(schema, want)
	case id != s.identity:
		return otherDatabase()
	case finished == 0:
		return &lease.TokenMismatchError{Domain: l.Domain, Offset: l.Offset, Got: l.Token}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package leasepg

// This file is the dead-letter queue: a table, whose replays are one transaction with the record that they append.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/clip"
	"github.com/stopbank/stopbank/lease/internal/dlq"
)

// LettersConfig configures OpenLetters.
type LettersConfig struct {
	// Pool is a pool of connections to a migrated database. Required. The caller owns it.
	Pool *pgxpool.Pool
	// Append appends a record to the source of a partition within a transaction, which it neither commits nor rolls
	// back: a call of Outbox.Enqueue, which finds the partition by the key. Required to replay only.
	Append func(ctx context.Context, tx pgx.Tx, partition string, record dispatch.Record) error
}

// letters is a deadletter.Store in `stopbank.dead_letters`.
type letters struct {
	pool   *pgxpool.Pool
	append func(ctx context.Context, tx pgx.Tx, partition string, record dispatch.Record) error
}

var _ deadletter.Store = (*letters)(nil)

// OpenLetters returns the dead letters of a database, for all partitions, after two queries that check its schema. There is
// nothing to close. Errors: *lease.InvalidError naming the field, the schema or the server's setting; or the pool's.
//
// Put takes one round trip, Get, Park, Unpark and Discard one or two. A list takes a round trip for each 500 letters and
// holds no connection while the caller's loop runs. A replay appends the record and removes the letter in one transaction,
// so the record is appended once, however often Replay fails and is repeated; it waits for another one of the same letter.
// A partition's name is UTF-8 without a zero byte, at most 255 bytes.
func OpenLetters(ctx context.Context, cfg LettersConfig) (deadletter.Store, error) {
	switch {
	case ctx == nil:
		return nil, noContext()
	case cfg.Pool == nil:
		return nil, &lease.InvalidError{Field: "leasepg.LettersConfig.Pool", Value: "nil", Allowed: "a pool"}
	}
	if _, err := check(ctx, cfg.Pool); err != nil {
		return nil, err
	}
	return &letters{pool: cfg.Pool, append: cfg.Append}, nil
}

const (
	putLetter = `INSERT INTO stopbank.dead_letters
		(partition, record_offset, domain, payload, header_keys, header_values, size, record_time, attempts, failure, given_up_at, route, parked, note)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT DO NOTHING`
	letterParts = `partition, record_offset, domain, size, record_time, attempts, failure, given_up_at, route, parked, note`
	listLetters = `SELECT ` + letterParts + ` FROM stopbank.dead_letters
		WHERE fate IS NULL AND (partition, record_offset) > ($1, $2) AND ($3 OR partition = $4) AND ($5 OR domain = $6)
		ORDER BY partition, record_offset LIMIT $7`
	getLetter  = `SELECT ` + letterParts + `, payload, header_keys, header_values FROM stopbank.dead_letters WHERE partition = $1 AND record_offset = $2 AND fate IS NULL`
	fateOf     = `SELECT fate FROM stopbank.dead_letters WHERE partition = $1 AND record_offset = $2`
	parkLetter = `UPDATE stopbank.dead_letters SET parked = $3, note = $4 WHERE partition = $1 AND record_offset = $2 AND fate IS NULL`
	dropLetter = `UPDATE stopbank.dead_letters SET fate = $3, gone_at = now(), payload = NULL, header_keys = NULL, header_values = NULL
		WHERE partition = $1 AND record_offset = $2 AND fate IS NULL`
)

// The times that the server knows: a producer may write others.
var (
	firstTime = time.Date(-4712, 1, 1, 0, 0, 0, 0, time.UTC)    //nolint:gochecknoglobals // constant
	lastTime  = time.Date(294276, 12, 31, 0, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // constant
)

// letterPage is how many letters List asks for at once.
const letterPage = 500

// Put implements deadletter.Store.
func (s *letters) Put(ctx context.Context, l deadletter.Letter) error {
	if len(l.Partition) > maxLedger || !utf8.ValidString(l.Partition) || strings.ContainsRune(l.Partition, 0) {
		return &lease.InvalidError{Field: "Letter.Partition", Value: strconv.Quote(l.Partition),
			Allowed: "0 to 255 bytes of UTF-8 without a zero byte"}
	}
	var written *time.Time
	if !l.Record.Time.IsZero() {
		at := l.Record.Time
		if at.Before(firstTime) {
			at = firstTime
		} else if at.After(lastTime) {
			at = lastTime
		}
		written = &at
	}
	var keys, values [][]byte
	for _, h := range l.Record.Headers {
		keys, values = append(keys, []byte(h.Key)), append(values, h.Value)
	}
	if _, err := exec(ctx, s.pool, putLetter, l.Partition, l.Record.Offset, []byte(l.Record.Domain), l.Record.Payload, keys, values,
		len(l.Record.Payload),
		written, min(l.Attempts, math.MaxInt32), clip.Text(l.Failure), l.At, clip.Text(l.Route), l.Parked,
		clip.Text(l.Note)); err != nil {
		return fmt.Errorf("leasepg: put a dead letter: %w", err)
	}
	return nil
}

// List implements deadletter.Store.
func (s *letters) List(ctx context.Context, filter deadletter.Filter) iter.Seq2[deadletter.Letter, error] {
	return func(yield func(deadletter.Letter, error) bool) {
		if err := dlq.Check(filter); err != nil {
			yield(deadletter.Letter{}, err)
			return
		}
		last := deadletter.ID{Offset: math.MinInt64}
		for left := filter.Limit; ; {
			size := letterPage
			if filter.Limit > 0 {
				size = min(size, left)
			}
			page, err := s.page(ctx, filter, last, size)
			if err != nil {
				yield(deadletter.Letter{}, fmt.Errorf("leasepg: list dead letters: %w", err))
				return
			}
			for _, l := range page {
				if !yield(l, nil) {
					return
				}
				last = l.ID()
			}
			if left -= len(page); len(page) < size || filter.Limit > 0 && left == 0 {
				return
			}
		}
	}
}

// page returns the letters after last.
func (s *letters) page(ctx context.Context, filter deadletter.Filter, last deadletter.ID, size int) ([]deadletter.Letter, error) {
	rows, err := s.pool.Query(ctx, listLetters, last.Partition, last.Offset,
		filter.Partition == "", filter.Partition, filter.Domain == "", []byte(filter.Domain), size)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (deadletter.Letter, error) { return scanLetter(row) })
}

// scanLetter reads letterParts, and what comes behind them into more.
func scanLetter(row pgx.Row, more ...any) (l deadletter.Letter, err error) {
	var domain []byte
	var written *time.Time
	err = row.Scan(append([]any{
		&l.Partition, &l.Record.Offset, &domain, &l.Size, &written, &l.Attempts, &l.Failure, &l.At, &l.Route, &l.Parked, &l.Note,
	}, more...)...)
	l.Record.Domain = string(domain)
	if written != nil {
		l.Record.Time = *written
	}
	return l, err
}

// Get implements deadletter.Store.
func (s *letters) Get(ctx context.Context, id deadletter.ID) (deadletter.Letter, error) {
	return get(ctx, s.pool, id, "")
}

// querier is a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func get(ctx context.Context, on querier, id deadletter.ID, lock string) (deadletter.Letter, error) {
	var payload []byte
	var keys, values [][]byte
	l, err := scanLetter(on.QueryRow(ctx, getLetter+lock, id.Partition, id.Offset), &payload, &keys, &values)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return deadletter.Letter{}, notDead(ctx, on, id)
	case err != nil:
		return deadletter.Letter{}, fmt.Errorf("leasepg: get a dead letter: %w", err)
	case len(keys) != len(values):
		return deadletter.Letter{}, fmt.Errorf("%w: %d headers with %d values", deadletter.ErrCorrupt, len(keys), len(values))
	}
	l.Record.Payload = payload
	for i, key := range keys {
		l.Record.Headers = append(l.Record.Headers, dispatch.Header{Key: string(key), Value: values[i]})
	}
	return l, nil
}

// notDead is what became of a letter that is not there.
func notDead(ctx context.Context, on querier, id deadletter.ID) error {
	var fate *string
	switch err := on.QueryRow(ctx, fateOf, id.Partition, id.Offset).Scan(&fate); {
	case errors.Is(err, pgx.ErrNoRows):
		return &deadletter.NotDeadError{ID: id, Fate: deadletter.Unknown}
	case err != nil:
		return fmt.Errorf("leasepg: the fate of a dead letter: %w", err)
	case fate == nil:
		return fmt.Errorf("leasepg: the dead letter %q came just now", id.String())
	}
	return &deadletter.NotDeadError{ID: id, Fate: deadletter.Fate(*fate)}
}

// Park implements deadletter.Store.
func (s *letters) Park(ctx context.Context, id deadletter.ID, note string) error {
	return s.update(ctx, id, parkLetter, true, clip.Text(note))
}

// Unpark implements deadletter.Store.
func (s *letters) Unpark(ctx context.Context, id deadletter.ID) error {
	return s.update(ctx, id, parkLetter, false, "")
}

// Discard implements deadletter.Store.
func (s *letters) Discard(ctx context.Context, id deadletter.ID) error {
	return s.update(ctx, id, dropLetter, string(deadletter.Discarded))
}

func (s *letters) update(ctx context.Context, id deadletter.ID, query string, args ...any) error {
	done, err := exec(ctx, s.pool, query, append([]any{id.Partition, id.Offset}, args...)...)
	if err != nil {
		return fmt.Errorf("leasepg: change a dead letter: %w", err)
	}
	if done.RowsAffected() == 0 {
		return notDead(ctx, s.pool, id)
	}
	return nil
}

// Replay implements deadletter.Store.
func (s *letters) Replay(ctx context.Context, id deadletter.ID) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		letter, err := get(ctx, tx, id, " FOR UPDATE")
		if err != nil {
			return err
		}
		if s.append == nil {
			return &lease.InvalidError{Field: "leasepg.LettersConfig.Append", Value: "nil",
				Allowed: "a function that takes the replayed records"}
		}
		if err := s.append(ctx, tx, id.Partition, dlq.Replay(letter)); err != nil {
			return fmt.Errorf("leasepg: append the record of %q: %w", id.String(), err)
		}
		if _, err := tx.Exec(ctx, dropLetter, id.Partition, id.Offset, string(deadletter.Replayed)); err != nil {
			return fmt.Errorf("leasepg: take a dead letter away: %w", err)
		}
		return nil
	})
}

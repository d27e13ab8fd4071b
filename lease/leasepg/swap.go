// SPDX-License-Identifier: Apache-2.0

package leasepg

// This file swaps records: one, or some in one statement.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stopbank/stopbank/lease/durable"
)

const (
	create = `INSERT INTO stopbank.lease_domains (ledger, domain, long_domain, version, filed, listed, state)
		VALUES ($1, $2, $3, $4, $5::smallint, $5::smallint <> 0, $6) ON CONFLICT DO NOTHING`
	replace = `UPDATE stopbank.lease_domains SET version = $4, filed = $5::smallint, listed = listed OR $5::smallint <> 0, state = $6
		WHERE ledger = $1 AND domain = $2 AND version = $3`

	// swapMany changes those rows that are where they are said to be and that nobody has locked, and tells which. It waits for
	// nobody, but for somebody who creates the same row: in one order, so that no two of them wait for each other. LATERAL has it
	// look each row up by its key, whatever the planner believes of a table that was never analyzed.
	swapMany = `WITH given AS (
			SELECT * FROM unnest($2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[], $6::smallint[], $7::bytea[])
				AS g (domain, long_domain, old, version, filed, state)
		), created AS (
			INSERT INTO stopbank.lease_domains (ledger, domain, long_domain, version, filed, listed, state)
			SELECT $1, domain, long_domain, version, filed, filed <> 0, state FROM given WHERE old = 0 ORDER BY domain
			ON CONFLICT DO NOTHING RETURNING domain
		), free AS (
			SELECT d.place, g.version, g.filed, g.state FROM given g, LATERAL (
				SELECT ctid AS place FROM stopbank.lease_domains
				WHERE ledger = $1 AND domain = g.domain AND version = g.old FOR NO KEY UPDATE SKIP LOCKED
			) d WHERE g.old <> 0
		), replaced AS (
			UPDATE stopbank.lease_domains d SET version = f.version, filed = f.filed, listed = d.listed OR f.filed <> 0,
				state = f.state
			FROM free f WHERE d.ctid = f.place RETURNING d.domain
		)
		SELECT domain FROM created UNION ALL SELECT domain FROM replaced`

	// unlist takes rows off the list that are filed nowhere, but for those that somebody works on, so that it waits for nobody.
	unlist = `UPDATE stopbank.lease_domains SET listed = false WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM stopbank.lease_domains WHERE ledger = $1 AND listed AND filed = 0
			LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED))`

	// maxShared bounds the state of a swap that is sent with others, so that no statement is huge.
	maxShared = 1 << 14
)

// swapping is one Swap.
type swapping struct {
	domain, long []byte
	old, version uint64
	filed        int16
	state        []byte
}

// Swap implements durable.Store. While some swaps are under way, further ones gather and are sent together, by a goroutine
// that ends with them; each has its own outcome.
func (s *store) Swap(ctx context.Context, name string, old uint64, state []byte, index durable.Index) (uint64, error) {
	if len(name) > maxName {
		return 0, fmt.Errorf("leasepg: %w: a name of %d bytes", durable.ErrNotApplied, len(name))
	}
	if len(state) <= maxShared { // a caller who leaves may use it for something else while it is being sent with others
		state = bytes.Clone(state)
	}
	c := &call[swapping]{what: swapOf(name, old, state, index)}
	sent, err := s.swaps.do(ctx, c, func() error { return s.swapAlone(ctx, &c.what) })
	switch {
	case !sent:
		return 0, fmt.Errorf("leasepg: %w: not sent: %w", durable.ErrNotApplied, err)
	case err != nil:
		return 0, fmt.Errorf("leasepg: swap: %w", err)
	}
	if name == "" {
		s.unlist(ctx)
	}
	return c.what.version, nil
}

// unlist shortens the list, with the ledger's own record (Compact): a minute after the last time, or at once while there is more.
// A list that it fails to shorten is as right as before.
func (s *store) unlist(ctx context.Context) {
	const most, pause = 10_000, time.Minute // rows in a statement
	last, now := s.unlisted.Load(), time.Now()
	if last != nil && now.Sub(*last) < pause || !s.unlisted.CompareAndSwap(last, &now) {
		return
	}
	if done, err := exec(ctx, s.pool, unlist, s.ledger, most); err == nil && done.RowsAffected() == most {
		s.unlisted.Store(nil)
	}
}

func swapOf(name string, old uint64, state []byte, index durable.Index) swapping {
	if state == nil {
		state = []byte{} // nil would be NULL
	}
	w := swapping{old: old, version: old + 1 + rand.Uint64N(maxStep), filed: int16(index), state: state}
	w.domain, w.long = key(name)
	return w
}

// statement is w by itself.
func (s *store) statement(w *swapping) (query string, args []any) {
	if w.old == 0 {
		return create, []any{s.ledger, w.domain, w.long, int64(w.version), w.filed, w.state}
	}
	return replace, []any{s.ledger, w.domain, int64(w.old), int64(w.version), w.filed, w.state}
}

func (s *store) swapAlone(ctx context.Context, w *swapping) error {
	query, args := s.statement(w)
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("%w: no connection: %w", durable.ErrNotApplied, err)
	}
	done, err := conn.Exec(ctx, query, args...)
	release(conn, err)
	if err != nil {
		return failed(err)
	}
	if done.RowsAffected() == 0 {
		return fmt.Errorf("%w: not at version %d", durable.ErrConflict, w.old)
	}
	return nil
}

// swapTogether leaves what was not carried out for its caller to send alone: a conflict, a row that is locked, a rejection show
// there. Two of one record are never sent together, and one with a long state is sent alone as well.
func (s *store) swapTogether(ctx context.Context, batch []*call[swapping]) {
	var domains, longs, states [][]byte
	var olds, versions []int64
	var filed []int16
	carried := map[string]*call[swapping]{}
	for _, c := range batch {
		w := c.what
		c.alone = true
		if carried[string(w.domain)] == nil && len(w.state) <= maxShared {
			carried[string(w.domain)] = c
			domains, longs, states = append(domains, w.domain), append(longs, w.long), append(states, w.state)
			olds, versions = append(olds, int64(w.old)), append(versions, int64(w.version))
			filed = append(filed, w.filed)
		}
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return // nothing was sent
	}
	// rows have the error as well
	rows, _ := conn.Query(ctx, swapMany, s.ledger, domains, longs, olds, versions, filed, states)
	var domain []byte
	_, err = pgx.ForEachRow(rows, []any{&domain}, func() error {
		carried[string(domain)].alone = false
		return nil
	})
	release(conn, err)
	if err == nil {
		return
	}
	err = failed(err)
	definite := errors.Is(err, durable.ErrConflict) || errors.Is(err, durable.ErrNotApplied)
	for _, c := range carried {
		if c.alone = definite; !definite {
			c.err = err
		}
	}
}

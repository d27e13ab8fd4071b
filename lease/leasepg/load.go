// SPDX-License-Identifier: Apache-2.0

package leasepg

// This file reads records: one, or some in one statement.

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/stopbank/stopbank/lease"
)

const (
	load     = `SELECT version, state FROM stopbank.lease_domains WHERE ledger = $1 AND domain = $2`
	loadMany = `SELECT domain, version, state FROM stopbank.lease_domains WHERE ledger = $1 AND domain = ANY ($2::bytea[])`
)

// loading is one Load.
type loading struct {
	domain  []byte
	there   bool
	version uint64
	state   []byte
}

// Load implements durable.Store. While some loads are under way, further ones gather and are sent together.
func (s *store) Load(ctx context.Context, name string) (state []byte, version uint64, err error) {
	if len(name) > maxName {
		return nil, 0, &lease.InvalidError{Field: "name", Value: fmt.Sprintf("%d bytes", len(name)), Allowed: "0 to 65535 bytes"}
	}
	c := &call[loading]{}
	c.what.domain, _ = key(name)
	if _, err := s.loads.do(ctx, c, func() error { return s.loadAlone(ctx, &c.what) }); err != nil {
		return nil, 0, fmt.Errorf("leasepg: load: %w", err)
	}
	if c.what.there && c.what.version == 0 { // durable takes 0 for a record that is not there
		return nil, 0, fmt.Errorf("leasepg: load: the row of %q has version 0, and no program writes that", name)
	}
	return c.what.state, c.what.version, nil
}

func (s *store) loadAlone(ctx context.Context, l *loading) error {
	err := s.pool.QueryRow(ctx, load, s.ledger, l.domain).Scan(&l.version, &l.state)
	if l.there = err == nil; errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

func (s *store) loadTogether(ctx context.Context, batch []*call[loading]) {
	domains := make([][]byte, len(batch))
	for i, c := range batch {
		domains[i] = c.what.domain
	}
	found := map[string]loading{}
	rows, _ := s.pool.Query(ctx, loadMany, s.ledger, domains) // rows have the error as well
	var l loading
	_, err := pgx.ForEachRow(rows, []any{&l.domain, &l.version, &l.state}, func() error {
		l.there = true
		found[string(l.domain)] = l
		l = loading{}
		return nil
	})
	for _, c := range batch {
		l := found[string(c.what.domain)]
		c.what.there, c.what.version, c.what.state, c.err = l.there, l.version, append([]byte(nil), l.state...), err
	}
}

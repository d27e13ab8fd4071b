// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file lets the faults loose on PostgreSQL: what workers open, and the register downstream, which is a table too.

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/testkit/faults"
	"github.com/stopbank/stopbank/lease/leasepg"
)

// register compares tokens in the statement that writes.
type register struct {
	pool   *pgxpool.Pool
	ledger string
}

const registerTables = `
CREATE TABLE IF NOT EXISTS register_fence (ledger text, domain text, token bigint NOT NULL, PRIMARY KEY (ledger, domain));
CREATE TABLE IF NOT EXISTS register_log (
    seq bigserial, ledger text, domain text, record bigint, token bigint,
    PRIMARY KEY (ledger, domain, record, token)
)`

const registerApply = `
WITH fence AS (
    INSERT INTO register_fence AS f VALUES ($1, $2, $3)
    ON CONFLICT (ledger, domain) DO UPDATE SET token = EXCLUDED.token WHERE f.token <= EXCLUDED.token
    RETURNING token
), log AS (
    INSERT INTO register_log (ledger, domain, record, token) SELECT $1, $2, $4, token FROM fence ON CONFLICT DO NOTHING
)
SELECT count(*) FROM fence`

func (r register) Apply(ctx context.Context, domain string, offset int64, token lease.Token) (bool, error) {
	var passed int
	err := r.pool.QueryRow(ctx, registerApply, r.ledger, domain, int64(token), offset).Scan(&passed)
	return passed == 1, err
}

func (r register) Entries(ctx context.Context) ([]faults.Entry, error) {
	rows, err := r.pool.Query(ctx, "SELECT domain, record, token FROM register_log WHERE ledger = $1 ORDER BY seq", r.ledger)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[faults.Entry])
}

func openSide(ctx context.Context, address, ledger string) (faults.Side, error) {
	cfg, err := pgxpool.ParseConfig(address)
	if err != nil {
		return faults.Side{}, err
	}
	cfg.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return faults.Side{}, err
	}
	// A worker may be started while the server is down.
	var store durable.Store
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // nothing tells when the server is up
		if store, err = leasepg.OpenStore(ctx, leasepg.StoreConfig{Pool: pool, Name: ledger}); err == nil {
			break
		} else if time.Now().After(until) {
			pool.Close()
			return faults.Side{}, fmt.Errorf("open: %w", err)
		}
	}
	return faults.Side{Store: store, Register: register{pool, ledger}, Close: pool.Close}, nil
}

func TestTorture(t *testing.T) {
	pool := migrated(t, 1)
	must(pool.Exec(t.Context(), registerTables, pgx.QueryExecModeSimpleProtocol))(t)
	pool.Close()
	s := faults.Server{Open: openSide, Address: server.URL()}
	at := pool.Config().ConnConfig
	if !filepath.IsAbs(at.Host) { // a proxy has no place on the way to a socket in a directory
		s.TCP = net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port)))
		s.Via = func(hostport string) string {
			u := must(url.Parse(server.URL()))(t)
			u.Host = hostport
			return u.String()
		}
	}
	if server.Private() {
		s.Restart = server.Restart
	}
	faults.Run(t, s)
}

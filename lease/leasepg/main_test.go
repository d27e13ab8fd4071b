// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file is what the tests share: one server for all of them, and a ledger of its own for each.

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasepg"
	"github.com/stopbank/stopbank/lease/leasepg/pgtest"
)

// server is nil where there is no PostgreSQL; TestMain sets it before any test runs.
var server *pgtest.Server

func TestMain(m *testing.M) {
	bankChild()
	ownertest.Child(ownerChild)
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	server, err = pgtest.Open(context.Background(), false)
	switch {
	case errors.Is(err, pgtest.ErrNone) && !pgtest.Required():
		fmt.Fprintf(os.Stderr, "leasepg: every test of a database is skipped: %v\n", err)
		return m.Run()
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintf(os.Stderr, "leasepg: %s\n", server.About())
	code := m.Run()
	if err := server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// need skips a test where there is no PostgreSQL.
func need(t testing.TB) *pgtest.Server {
	t.Helper()
	if server == nil {
		t.Skip(pgtest.ErrNone)
	}
	return server
}

// connect returns a pool of n connections to a URL, with settings of its own, each "name=value".
func connect(t testing.TB, at string, n int32, settings ...string) *pgxpool.Pool {
	t.Helper()
	u := must(url.Parse(at))(t)
	query := u.Query()
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		query.Set(name, value)
	}
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // pgx takes a plus for a plus
	cfg := must(pgxpool.ParseConfig(u.String()))(t)
	cfg.MaxConns = n
	pool := must(pgxpool.NewWithConfig(t.Context(), cfg))(t)
	t.Cleanup(pool.Close)
	return pool
}

// migrated returns a pool to the tests' own database, with its schema.
func migrated(t testing.TB, n int32, settings ...string) *pgxpool.Pool {
	t.Helper()
	pool := connect(t, need(t).URL(), n, settings...)
	noError(t, leasepg.Migrate(t.Context(), pool))
	return pool
}

var ledgers atomic.Int64

// open returns the store of a new ledger.
func open(t testing.TB, pool *pgxpool.Pool) durable.Store {
	t.Helper()
	return named(t, pool, fmt.Sprintf("%s/%d", t.Name(), ledgers.Add(1)))
}

func named(t testing.TB, pool *pgxpool.Pool, ledger string) durable.Store {
	t.Helper()
	return must(leasepg.OpenStore(t.Context(), leasepg.StoreConfig{Pool: pool, Name: ledger}))(t)
}

// must is for what cannot fail here: x := must(f())(t).
func must[T any](v T, err error) func(fataler) T {
	return func(t fataler) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

func noError(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}

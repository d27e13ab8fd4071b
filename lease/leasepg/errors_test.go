// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file is about what goes wrong: each error says whether the swap may have been applied.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasepg"
)

// kind names the three kinds of errors that a Swap may return.
func kind(err error) string {
	conflict, not := errors.Is(err, durable.ErrConflict), errors.Is(err, durable.ErrNotApplied)
	switch {
	case err == nil:
		return "applied"
	case conflict && not:
		return "both"
	case conflict:
		return "conflict"
	case not:
		return "not applied"
	}
	return "unknown"
}

func TestConfig(t *testing.T) {
	_, err := leasepg.OpenStore(t.Context(), leasepg.StoreConfig{})
	if !refusesField(err, "leasepg.StoreConfig.Pool") || err.Error() != "lease: leasepg.StoreConfig.Pool is nil; allowed: a pool" {
		t.Errorf("no pool: %v", err)
	}
	pool := migrated(t, 1)
	_, err = leasepg.OpenStore(nil, leasepg.StoreConfig{Pool: pool}) //nolint:staticcheck // refused, not a panic
	if !refusesField(err, "ctx") {
		t.Errorf("New with a nil context: %v", err)
	}
	if err := leasepg.Migrate(nil, pool); !refusesField(err, "ctx") { //nolint:staticcheck // the same
		t.Errorf("Migrate with a nil context: %v", err)
	}
	if err := leasepg.Migrate(t.Context(), nil); !refusesField(err, "pool") {
		t.Errorf("Migrate of no pool: %v", err)
	}
	for _, ledger := range []string{strings.Repeat("x", 256), "a\x00b", "\xff"} {
		if _, err := leasepg.OpenStore(t.Context(), leasepg.StoreConfig{Pool: pool, Name: ledger}); !refusesField(err,
			"leasepg.StoreConfig.Name") {
			t.Errorf("ledger %.10q…: %v", ledger, err)
		}
	}
	for _, ledger := range []string{"", strings.Repeat("x", 255), "orders/3", "Straße '\"\\"} {
		s := named(t, pool, ledger)
		swap(t, s, "A", 0, ledger, durable.Held)
		if state, _ := load(t, s, "A"); string(state) != ledger {
			t.Errorf("%q has the state %q", ledger, state)
		}
	}
}

func refusesField(err error, field string) bool {
	var invalid *lease.InvalidError
	return errors.As(err, &invalid) && invalid.Field == field && errors.Is(err, lease.ErrInvalid)
}

// A server that forgets what it acknowledged is refused.
func TestOpenStoreRefusesLazyCommits(t *testing.T) {
	migrated(t, 1)
	for _, setting := range []string{"off", "local", "on"} {
		_, err := leasepg.OpenStore(t.Context(), leasepg.StoreConfig{Pool: connect(t, server.URL(), 1, "synchronous_commit="+setting)})
		if got := refusesField(err, "leasepg.setting synchronous_commit"); got != (setting == "off") || !got && err != nil {
			t.Errorf("synchronous_commit %s: %v", setting, err)
		}
	}
}

// The sorting of errors, on such as pgx makes them.
func TestKindsOfErrors(t *testing.T) {
	said := func(severity, code string) error {
		return &pgconn.PgError{Severity: "anything", SeverityUnlocalized: severity, Code: code}
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{said("ERROR", "57014"), "not applied"}, // statement_timeout
		{said("ERROR", "55P03"), "not applied"}, // lock_timeout
		{said("ERROR", "25006"), "not applied"}, // read-only
		{said("ERROR", "53100"), "not applied"}, // disk full
		{said("ERROR", "42501"), "not applied"}, // no rights
		{said("ERROR", "40001"), "conflict"},
		{said("ERROR", "40P01"), "conflict"},
		{said("ERROR", "40003"), "unknown"},
		{said("ERROR", "08006"), "unknown"},
		{said("FATAL", "57P01"), "unknown"},
		{said("PANIC", "XX000"), "unknown"},
		{said("", "42501"), "unknown"}, // not a server that we know
		{io.ErrUnexpectedEOF, "unknown"},
		{context.Canceled, "unknown"},
		{fmt.Errorf("write: %w", unsent{}), "not applied"},
	} {
		got := leasepg.Failed(c.err)
		if kind(got) != c.want || !errors.Is(got, c.err) && !errors.As(got, new(unsent)) {
			t.Errorf("%v: %s (%v), want %s", c.err, kind(got), got, c.want)
		}
	}
}

// unsent is an error of a statement that was never sent.
type unsent struct{}

func (unsent) Error() string     { return "unsent" }
func (unsent) SafeToRetry() bool { return true }

func TestUnreachable(t *testing.T) {
	pool := migrated(t, 1)
	s := open(t, pool)
	swap(t, s, "A", 0, "x", durable.Held)

	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Swap(done, "A", 1, nil, durable.Held); kind(err) != "not applied" || !errors.Is(err, context.Canceled) {
		t.Errorf("with a done context: %s: %v", kind(err), err)
	}
	if _, _, err := s.Load(done, "A"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a done context: %v", err)
	}
	for _, err := range s.List(done, durable.Held) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("with a done context: %v", err)
		}
	}

	// A pool without a free connection has sent nothing.
	conn := must(pool.Acquire(t.Context()))(t)
	short, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	if _, err := s.Swap(short, "A", 1, nil, durable.Held); kind(err) != "not applied" {
		t.Errorf("without a connection: %s: %v", kind(err), err)
	}
	conn.Release()

	nobody := connect(t, "postgres://x@127.0.0.1:1/x?sslmode=disable", 1)
	if _, err := leasepg.OpenStore(t.Context(), leasepg.StoreConfig{Pool: nobody}); err == nil || is[*lease.InvalidError](err) {
		t.Errorf("New without a server: %v", err)
	}
	if err := leasepg.Migrate(t.Context(), nobody); err == nil {
		t.Error("Migrate without a server")
	}
	pool.Close()
	if _, err := s.Swap(t.Context(), "A", 1, nil, durable.Held); kind(err) != "not applied" {
		t.Errorf("with a closed pool: %s: %v", kind(err), err)
	}
	if _, _, err := s.Load(t.Context(), "A"); err == nil {
		t.Error("Load with a closed pool")
	}
}

// is reports whether err is, or wraps, an E.
func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

func TestLostReply(t *testing.T) {
	line, cfg := ownertest.NewLine(t), must(pgxpool.ParseConfig(need(t).URL()))(t)
	cfg.MaxConns, cfg.ConnConfig.DialFunc = 1, line.DialContext
	far := must(pgxpool.NewWithConfig(t.Context(), cfg))(t)
	t.Cleanup(far.Close)
	ledger := fmt.Sprintf("%s/%d", t.Name(), ledgers.Add(1))
	ownertest.LostReply(t, named(t, migrated(t, 2), ledger), named(t, far, ledger), line)
}

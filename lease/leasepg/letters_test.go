// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file runs the suite of dead letters on the table, with an outbox beside it.

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/testkit/lettertest"
	"github.com/stopbank/stopbank/lease/leasepg"
)

// letterOutbox makes a table that records are appended to.
func letterOutbox(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	must(pool.Exec(t.Context(), `CREATE TABLE outbox (id bigserial PRIMARY KEY, key bytea NOT NULL, payload bytea, headers jsonb NOT NULL)`))(t)
}

func letterEnqueue(ctx context.Context, tx pgx.Tx, _ string, r dispatch.Record) error {
	headers, err := json.Marshal(r.Headers)
	if err == nil {
		_, err = tx.Exec(ctx, "INSERT INTO outbox (key, payload, headers) VALUES ($1, $2, $3)", []byte(r.Domain), r.Payload, headers)
	}
	return err
}

func letterEnqueued(t testing.TB, pool *pgxpool.Pool) []dispatch.Record {
	t.Helper()
	rows, err := pool.Query(t.Context(), "SELECT key, payload, headers FROM outbox ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	records := must(pgx.CollectRows(rows, func(row pgx.CollectableRow) (r dispatch.Record, err error) {
		var key, headers []byte
		if err = row.Scan(&key, &r.Payload, &headers); err == nil {
			err = json.Unmarshal(headers, &r.Headers)
		}
		r.Domain = string(key)
		return r, err
	}))(t)
	return records
}

// letterDesk is a database of its own.
func letterDesk(t testing.TB) lettertest.Desk {
	at := must(need(t).Database(t.Context()))(t)
	pool := connect(t, at, 4)
	noError(t, leasepg.Migrate(t.Context(), pool))
	letterOutbox(t, pool)
	return lettertest.Desk{
		Partition: "orders/3", Once: true,
		Source: func(t testing.TB) []dispatch.Record { return letterEnqueued(t, pool) },
		Open: func(t testing.TB, dial lettertest.Dial) deadletter.Store {
			cfg := must(pgxpool.ParseConfig(at))(t)
			cfg.MaxConns = 1
			cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				return dial(ctx, network, address)
			}
			own := must(pgxpool.NewWithConfig(t.Context(), cfg))(t)
			t.Cleanup(own.Close)
			return must(leasepg.OpenLetters(t.Context(), leasepg.LettersConfig{Pool: own, Append: letterEnqueue}))(t)
		},
	}
}

func TestPropertyLetters(t *testing.T) { lettertest.Run(t, letterDesk) }

func TestLettersRefuse(t *testing.T) {
	pool := connect(t, need(t).URL(), 1)
	noError(t, leasepg.Migrate(t.Context(), pool))
	letters := must(leasepg.OpenLetters(t.Context(), leasepg.LettersConfig{Pool: pool}))(t)
	id := deadletter.ID{Partition: t.Name(), Offset: 1}
	noError(t, letters.Put(t.Context(), deadletter.Letter{Partition: t.Name(), Record: dispatch.Record{Offset: 1}}))
	_, noPool := leasepg.OpenLetters(t.Context(), leasepg.LettersConfig{})
	_, noContext := leasepg.OpenLetters(nil, leasepg.LettersConfig{Pool: pool}) //nolint:staticcheck // that is the point
	for want, err := range map[string]error{
		"leasepg.LettersConfig.Append": letters.Replay(t.Context(), id),
		"leasepg.LettersConfig.Pool":   noPool,
		"ctx":                          noContext,
		"Letter.Partition":             letters.Put(t.Context(), deadletter.Letter{Partition: "\xff"}),
	} {
		var invalid *lease.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != want {
			t.Errorf("%s: %v", want, err)
		}
	}
	if l, err := letters.Get(t.Context(), id); err != nil || l.ID() != id {
		t.Errorf("after a replay that was refused: %+v, %v", l, err)
	}
}

// A record that cannot be appended stays a letter, and the transaction leaves nothing.
func TestLettersAppendFails(t *testing.T) {
	pool := connect(t, need(t).URL(), 1)
	noError(t, leasepg.Migrate(t.Context(), pool))
	full := errors.New("the outbox is full")
	letters := must(leasepg.OpenLetters(t.Context(), leasepg.LettersConfig{Pool: pool,
		Append: func(ctx context.Context, tx pgx.Tx, _ string, _ dispatch.Record) error {
			_, err := tx.Exec(ctx, "CREATE TABLE half_done ()")
			return errors.Join(err, full)
		}}))(t)
	noError(t, letters.Put(t.Context(), deadletter.Letter{Partition: t.Name(), Record: dispatch.Record{Offset: 1}}))
	report, err := deadletter.ReplayAll(t.Context(), letters, deadletter.Filter{Partition: t.Name()})
	if !errors.Is(err, full) || report != (deadletter.Report{Failed: 1}) {
		t.Errorf("%+v, %v", report, err)
	}
	var there bool
	if err := pool.QueryRow(t.Context(), "SELECT to_regclass('half_done') IS NOT NULL").Scan(&there); err != nil || there {
		t.Errorf("the transaction left something: %v, %v", there, err)
	}
	if _, err := letters.Get(t.Context(), deadletter.ID{Partition: t.Name(), Offset: 1}); err != nil {
		t.Error(err)
	}
}

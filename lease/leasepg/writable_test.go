// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file is about sessions that only read, which a failover leaves in a pool: no call is served by the same one twice.

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasepg"
)

func TestReadOnlySessionsAreNotKept(t *testing.T) {
	pool := fresh(t, 1)
	noError(t, leasepg.Migrate(t.Context(), pool))
	o := outbox(t, pool, 1)
	source := opened(t, o, 0, open(t, pool))
	ledger := must(durable.New(durable.Config{Store: open(t, pool)}))(t)
	desk := must(leasepg.OpenLetters(t.Context(), leasepg.LettersConfig{Pool: pool}))(t)
	letter := deadletter.Letter{Partition: "orders/0", At: time.Now(), Record: dispatch.Record{Domain: "d"}}
	offset, journals := int64(0), 0
	claim := func(ctx context.Context) error {
		journals++
		l, err := leasepg.OpenJournal(ctx, pool, fmt.Sprint("journal/", journals), time.Minute, lease.Config{})
		if err == nil {
			err = l.Close(ctx)
		}
		return err
	}
	for _, c := range []struct {
		name string
		call func(ctx context.Context) error
	}{
		{"TryAcquire", func(ctx context.Context) error {
			offset++
			_, err := ledger.TryAcquire(ctx, "d", offset)
			return err
		}},
		{"a journal", claim},
		{"Committed", func(ctx context.Context) error { _, err := source.Committed(ctx); return err }},
		{"Commit", func(ctx context.Context) error { return source.Commit(ctx, 1) }},
		{"Put", func(ctx context.Context) error { return desk.Put(ctx, letter) }},
		{"Park", func(ctx context.Context) error { return desk.Park(ctx, letter.ID(), "") }},
		{"Discard", func(ctx context.Context) error { return desk.Discard(ctx, letter.ID()) }},
	} {
		execute(t, pool, "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
		var server *pgconn.PgError
		if err := c.call(t.Context()); !errors.As(err, &server) || server.Code != "25006" {
			t.Errorf("D12: %s in a session that only reads: %v", c.name, err)
		}
		if err := c.call(t.Context()); err != nil {
			t.Errorf("D12: %s after that: %v", c.name, err)
			pool.Reset()
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file is about the order of a look's questions, which no run of random writers is sure to miss.

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease/durable"
)

// batches notes the statements that are sent in batches.
type batches struct {
	*tracer
	mu  sync.Mutex // guards sql
	sql []string
}

func (*batches) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (b *batches) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sql = append(b.sql, data.SQL)
}

func (*batches) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// First what was drawn, then who writes, then the rows: else somebody could draw an id between the first two, or commit one after
// the last.
func TestOrderOfQuestions(t *testing.T) {
	pool := migrated(t, 1)
	cfg := must(pgxpool.ParseConfig(server.URL()))(t)
	sent := &batches{tracer: &tracer{}}
	cfg.ConnConfig.Tracer = sent
	watched := must(pgxpool.NewWithConfig(t.Context(), cfg))(t)
	defer watched.Close()
	o := outbox(t, watched, 1)
	put(t, pool, o, record("a", 1))
	s := opened(t, o, 0, durable.NewMemStore())
	from, _ := take(t, s)
	next(t, s, from, 9)
	want := []string{"outbox_ids", "pg_locks", "pg_postmaster_start_time", "outbox_records"}
	if len(sent.sql) != len(want) {
		t.Fatalf("L13: sent %q", sent.sql)
	}
	for i, part := range want {
		if !strings.Contains(sent.sql[i], part) {
			t.Errorf("L13: statement %d is %q, want %s", i, sent.sql[i], part)
		}
	}
}

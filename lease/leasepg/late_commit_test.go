// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file holds L16: a commit that the server carries out late, after its context ended and others were sent, moves no position
// back.

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
)

// The drain of a partition cancels a commit and sends a higher one on another connection; then the server carries the first one
// out. The position stays where the second one put it, and the partition can be opened under the ledger that was compacted to it.
func TestLateCommitMovesNothingBack(t *testing.T) {
	direct := migrated(t, 2)
	cfg := must(pgxpool.ParseConfig(server.URL()))(t)
	cfg.MaxConns, cfg.ConnConfig.DefaultQueryExecMode = 2, pgx.QueryExecModeExec // a statement is one message, and nothing prepares it
	line, dials := ownertest.NewLine(t), atomic.Int32{}
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			return line.DialContext(ctx, network, address)
		}
		return dial(ctx, network, address)
	}
	pool := must(pgxpool.NewWithConfig(t.Context(), cfg))(t)
	t.Cleanup(pool.Close)

	o := outbox(t, direct, 1)
	name := o.Partitions()[0]
	ledger := ledgerIn(t, open(t, direct))
	s := must(reopened(t, pool, strings.TrimSuffix(name, "/0"), 1).Open(t.Context(), name, ledger))(t).Source
	first, _ := take(t, s)
	for i := range 15 {
		put(t, direct, o, record("a", i))
	}
	records := next(t, s, first, 15)
	lower, higher := records[4].Offset+1, records[14].Offset+1
	backend := ask(t, pool, "SELECT pg_backend_pid()::text")
	if n := dials.Load(); n != 1 {
		t.Fatalf("%d connections", n)
	}

	line.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Commit(ctx, lower); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("L16: the commit that is held back: %v", err)
	}
	noError(t, s.Commit(t.Context(), higher))
	noError(t, ledger.Compact(t.Context(), higher))
	line.Mend()
	for ask(t, direct, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1::int", backend) != "0" {
		time.Sleep(time.Millisecond) // nothing tells when the server has done what was held back
	}

	again, err := o.Open(t.Context(), name, ledger)
	if err != nil {
		t.Fatalf("L16: the partition cannot be opened after the late commit: %v", err)
	}
	if floor, _ := take(t, again.Source); floor != higher {
		t.Errorf("L16: the position is %d after the late commit, want %d", floor, higher)
	}
}

// Benchmark rows of the ledger in PostgreSQL.

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasepg"
	"github.com/stopbank/stopbank/lease/leasepg/pgtest"
)

// pgDomains is the number of domains, or rows, that a goroutine cycles through.
const pgDomains = 16

// leasepgRows need a server: the one of STOPBANK_POSTGRES_URL, or a private one with fsync on, started by the first row.
func leasepgRows() []row {
	if err := pgtest.Available(context.Background()); err != nil {
		leftOut = append(leftOut, "the rows of lease/leasepg: no PostgreSQL is installed")
		return nil
	}
	return []row{pgRow(1), pgRow(4), pgRow(16)}
}

// pgRow: acquire and complete a lease by several goroutines, beside the minimum cost of any ledger in a table: two rows updated by
// key, each in its own commit, on the same server through the same pool.
func pgRow(goroutines int) row {
	title := "acquire + succeed in PostgreSQL, one goroutine at a time"
	if goroutines > 1 {
		title = fmt.Sprintf("acquire + succeed in PostgreSQL, %d goroutines on domains of their own", goroutines)
	}
	ours := sync.OnceValue(func() *pgLedger { return newPGLedger(goroutines) })
	bare := sync.OnceValue(func() *pgBare { return newPGBare(goroutines) })
	return row{"lease/leasepg", title, false,
		variant{"durable.Ledger over leasepg, TryAcquire + Succeed", func() func(int) { return split(goroutines, ours().loop) }},
		[]peer{{variant{"two UPDATEs of a row by its key", func() func(int) { return split(goroutines, bare().loop) }}, 1 / 0.9}},
	}
}

// split gives each goroutine its share, at least one.
func split(goroutines int, loop func(worker, n int)) func(n int) {
	return func(n int) {
		var group sync.WaitGroup
		for worker := range goroutines {
			group.Go(func() { loop(worker, (n+goroutines-1)/goroutines) })
		}
		group.Wait()
	}
}

// postgres starts the server at its first call; endPostgres stops it.
var (
	postgres = sync.OnceValue(func() *pgxpool.Pool {
		ctx := context.Background()
		s, err := pgtest.Open(ctx, true)
		if err != nil {
			exit("%v", err)
		}
		pgServer.Store(s)
		fmt.Fprintf(os.Stderr, "\r\033[Kleasepg: %s\n", s.About())
		cfg, err := pgxpool.ParseConfig(s.URL())
		if err != nil {
			exit("%v", err)
		}
		cfg.MaxConns = 16
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			exit("%v", err)
		}
		if err := leasepg.Migrate(ctx, pool); err != nil {
			exit("%v", err)
		}
		return pool
	})
	pgServer atomic.Pointer[pgtest.Server]
)

func endPostgres() {
	if s := pgServer.Swap(nil); s != nil {
		if err := s.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		}
	}
}

// pgLedger drives a ledger as pgBare drives its table: each worker cycles through its own domains.
type pgLedger struct {
	ledger  *durable.Ledger
	offsets []int64 // by worker
}

func newPGLedger(goroutines int) *pgLedger {
	ctx := context.Background()
	store, err := leasepg.New(ctx, leasepg.Config{Pool: postgres(), Ledger: fmt.Sprintf("bench %d", goroutines)})
	if err != nil {
		exit("%v", err)
	}
	ledger, err := durable.New(durable.Config{Store: store, MaxRetries: lease.DefaultRetries})
	if err != nil {
		exit("%v", err)
	}
	r := &pgLedger{ledger, make([]int64, goroutines)}
	for worker := range goroutines {
		r.loop(worker, pgDomains)
	}
	return r
}

func pgName(worker int, i int64) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", worker, i) }

func (r *pgLedger) loop(worker, n int) {
	ctx := context.Background()
	for range n {
		offset := r.offsets[worker]
		r.offsets[worker]++
		name := pgName(worker, offset%pgDomains)
		a, err := r.ledger.TryAcquire(ctx, name, offset)
		if err != nil {
			exit("%v", err)
		}
		if _, err := r.ledger.Succeed(ctx, name, a.Lease.Token); err != nil {
			exit("%v", err)
		}
		if worker == 0 && offset%1024 == 1023 { // like a consumer's commits
			if err := r.ledger.Compact(ctx, offset-1024); err != nil {
				exit("%v", err)
			}
		}
	}
}

// pgBare updates rows and keeps no invariants.
type pgBare struct {
	update string
	state  []byte // as long as a small state of a ledger
	next   []int64
}

func newPGBare(goroutines int) *pgBare {
	ctx := context.Background()
	table := fmt.Sprintf("bare_%d", goroutines)
	if _, err := postgres().Exec(ctx, "CREATE TABLE "+table+" (key bytea PRIMARY KEY, version bigint NOT NULL, state bytea NOT NULL) WITH (fillfactor = 70)"); err != nil {
		exit("%v", err)
	}
	b := &pgBare{"UPDATE " + table + " SET version = version + 1, state = $2 WHERE key = $1", []byte(strings.Repeat("s", 64)), make([]int64, goroutines)}
	for worker := range goroutines {
		for i := range int64(pgDomains) {
			if _, err := postgres().Exec(ctx, "INSERT INTO "+table+" VALUES ($1, 1, $2)", []byte(pgName(worker, i)), b.state); err != nil {
				exit("%v", err)
			}
		}
		b.loop(worker, pgDomains)
	}
	return b
}

func (b *pgBare) loop(worker, n int) {
	ctx := context.Background()
	for range n {
		key := []byte(pgName(worker, b.next[worker]%pgDomains))
		b.next[worker]++
		for range 2 {
			if done, err := postgres().Exec(ctx, b.update, key, b.state); err != nil || done.RowsAffected() != 1 {
				exit("%v, %v", done, err)
			}
		}
	}
}

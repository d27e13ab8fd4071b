// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file is about a record that is finished in the transaction of its handler: done if that is committed, untouched if it is
// not, and refused where it could not be both.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasepg"
)

// held is a ledger with a lease on offset 1 of A, and 2 behind it.
func held(t testing.TB, pool *pgxpool.Pool) (lease.Ledger, lease.Lease) {
	t.Helper()
	l := ledgerIn(t, open(t, pool))
	a, err := l.TryAcquire(t.Context(), "A", 1)
	if err != nil || a.Status != lease.Acquired {
		t.Fatalf("%+v, %v", a, err)
	}
	if status, err := l.Offer(t.Context(), "A", 2); err != nil || status != lease.Enqueued {
		t.Fatalf("%v, %v", status, err)
	}
	return l, a.Lease
}

func ledgerIn(t testing.TB, store durable.Store) lease.Ledger {
	t.Helper()
	return must(durable.New(durable.Config{Store: store, MaxRetries: lease.DefaultRetries}))(t)
}

// outcome is what became of the lease: held, done, or something else.
func outcome(t testing.TB, l lease.Ledger, held lease.Lease) string {
	t.Helper()
	v, err := l.Inspect(t.Context(), held.Domain)
	switch {
	case err != nil:
		t.Fatal(err)
	case v.Lease != nil && v.Lease.Token == held.Token && v.Processed == 0:
		return "held"
	case v.Lease == nil && v.Processed == 1:
		return "done"
	}
	return fmt.Sprintf("%+v", v)
}

func TestSucceedTx(t *testing.T) {
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			pool := migrated(t, 1, "default_query_exec_mode="+mode) // the transaction's connection is the only one
			l, job := held(t, pool)
			rolledBack := errors.New("the user thinks better of it")
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // with another connection it would wait for ever
			defer cancel()
			finish := func(tx pgx.Tx) error { return leasepg.SucceedTx(ctx, tx, l, job) }
			if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return errors.Join(finish(tx), rolledBack) }); err == nil ||
				err.Error() != rolledBack.Error() {
				t.Fatal(err)
			}
			if got := outcome(t, l, job); got != "held" {
				t.Fatalf("L14: rolled back: %s", got)
			}
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { // only a savepoint is rolled back
				if err := pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
					return errors.Join(finish(tx),
						rolledBack)
				}); !errors.Is(err, rolledBack) {
					return err
				}
				return nil
			})
			if got := outcome(t, l, job); err != nil || got != "held" {
				t.Fatalf("L14: rolled back to a savepoint: %s, %v", got, err)
			}
			noError(t, pgx.BeginFunc(t.Context(), pool, finish))
			if got := outcome(t, l, job); got != "done" {
				t.Fatalf("L14: committed: %s", got)
			}
			var again *lease.LeaseNotFoundError
			if err := pgx.BeginFunc(t.Context(), pool, finish); !errors.As(err, &again) || again.Status != lease.AlreadyProcessed {
				t.Errorf("L14: a second time: %v", err)
			}
			if _, err := l.Succeed(t.Context(), "A", job.Token); !errors.As(err, &again) || again.Status != lease.AlreadyProcessed ||
				again.Offset != 1 {
				t.Errorf("L14: Succeed, after it: %v", err)
			}
			if a, err := l.AcquireNext(t.Context(), "A"); err != nil || a.Lease.Offset != 2 || a.Lease.Token <= job.Token {
				t.Errorf("L14: the next one: %+v, %v", a, err)
			}
		})
	}
}

// Until the transaction ends, calls on the domain wait; then they see what became of it, whichever it is.
func TestOthersWait(t *testing.T) {
	pool := migrated(t, 4)
	for _, commits := range []bool{false, true} {
		l, job := held(t, pool)
		other := ledgerIn(t, l.(interface{ Store() durable.Store }).Store())
		tx := must(pool.Begin(t.Context()))(t)
		noError(t, leasepg.SucceedTx(t.Context(), tx, l, job))
		reclaimed := make(chan error, 1)
		go func() {
			_, err := other.Reclaim(t.Context(), "A", job.Token)
			reclaimed <- err
		}()
		waits(t, pool)
		select {
		case err := <-reclaimed:
			t.Fatalf("L14: reclaimed beside the transaction: %v", err)
		default:
		}
		end := tx.Rollback
		if commits {
			end = tx.Commit
		}
		noError(t, end(t.Context()))
		if err := <-reclaimed; commits != errors.Is(err, lease.ErrLeaseNotFound) || !commits && err != nil {
			t.Errorf("L14: committed %v, reclaimed: %v", commits, err)
		}
		if !commits { // the former holder has lost it
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return leasepg.SucceedTx(t.Context(), tx, l, job) })
			if !errors.Is(err, lease.ErrTokenMismatch) {
				t.Errorf("L14: with a token that was reclaimed: %v", err)
			}
		}
	}
}

// waits returns when a statement on the ledgers waits for a lock.
func waits(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	for ask(t, pool, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%lease_domains%' AND datname = current_database()") == "0" {
		time.Sleep(time.Millisecond) // nothing tells
	}
}

// begin begins a transaction that is rolled back in the end.
func begin(t testing.TB, pool *pgxpool.Pool, options pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx := must(pool.BeginTx(t.Context(), options))(t)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	return tx
}

// refusesUnusable checks what use says of transactions of the pool, or of another database, in which nothing can be written down.
func refusesUnusable(t *testing.T, pool *pgxpool.Pool, use func(pgx.Tx) error) {
	t.Helper()
	state := func(want string, tx pgx.Tx) {
		t.Helper()
		if err := use(tx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a transaction that is %s: %v", want, err)
		}
	}
	over := begin(t, pool, pgx.TxOptions{})
	noError(t, over.Commit(t.Context()))
	state("over", over)
	broken := begin(t, pool, pgx.TxOptions{})
	if _, err := broken.Exec(t.Context(), "SELECT 1/0"); err == nil {
		t.Fatal("1/0")
	}
	state("aborted", broken)
	state("read-only", begin(t, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}))
	elsewhere := fresh(t, 4)
	noError(t, leasepg.Migrate(t.Context(), elsewhere))
	state("of another database", begin(t, elsewhere, pgx.TxOptions{}))
	execute(t, elsewhere, "UPDATE stopbank.lease_schema SET version = version + 1")
	refusesSchema(t, use(begin(t, elsewhere, pgx.TxOptions{})), newest+1, newest)
}

// A transaction in which the record cannot be finished is refused, and says why.
func TestSucceedTxRefuses(t *testing.T) {
	pool := migrated(t, 8) // each transaction keeps its connection to the end
	l, job := held(t, pool)
	refusesUnusable(t, pool, func(tx pgx.Tx) error { return leasepg.SucceedTx(t.Context(), tx, l, job) })
	refusesSchema(t, leasepg.SucceedTx(t.Context(), begin(t, fresh(t, 1), pgx.TxOptions{}), l, job), 0, newest)

	// A conflict is the user's to try again.
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		late := begin(t, pool, pgx.TxOptions{IsoLevel: level})
		must(late.Exec(t.Context(), "SELECT count(*) FROM stopbank.lease_schema"))(t)
		must(l.Fail(t.Context(), "A", job.Token))(t)
		var server *pgconn.PgError
		if err := leasepg.SucceedTx(t.Context(), late, l, job); !errors.As(err, &server) || server.Code != "40001" {
			t.Errorf("%s: %v, want a serialization failure", level, err)
		}
	}
	if got := outcome(t, l, job); got != "held" {
		t.Fatalf("after all of it: %s", got)
	}
	if err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
		return leasepg.SucceedTx(t.Context(), tx, l, job)
	}); err != nil {
		t.Errorf("serializable, alone: %v", err)
	}

	memory := must(lease.NewMemory(lease.Config{}))(t)
	tx := begin(t, pool, pgx.TxOptions{})
	for _, ledger := range []lease.Ledger{nil, memory, ledgerIn(t, durable.NewMemStore())} {
		if err := leasepg.SucceedTx(t.Context(), tx, ledger, job); !refusesField(err, "ledger") {
			t.Errorf("%T: %v", ledger, err)
		}
	}
	if err := leasepg.SucceedTx(t.Context(), nil, l, job); !refusesField(err, "tx") {
		t.Errorf("no transaction: %v", err)
	}
	if err := leasepg.SucceedTx(nil, tx, l, job); !refusesField(err, "ctx") { //nolint:staticcheck // refused, not a panic
		t.Errorf("no context: %v", err)
	}
	if err := leasepg.SucceedTx(t.Context(), tx, l, lease.Lease{}); !refusesField(err, "domain") {
		t.Errorf("no lease: %v", err)
	}
}

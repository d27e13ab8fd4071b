// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file is about what is enqueued and read: nothing lost, nothing early, each key in its order, whoever commits when.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasepg"
)

// outbox opens a new one.
func outbox(t testing.TB, pool *pgxpool.Pool, partitions int) *leasepg.Outbox {
	t.Helper()
	return reopened(t, pool, fmt.Sprintf("%s/%d", t.Name(), ledgers.Add(1)), partitions)
}

func reopened(t testing.TB, pool *pgxpool.Pool, name string, partitions int) *leasepg.Outbox {
	t.Helper()
	return must(leasepg.OpenOutbox(t.Context(), leasepg.OutboxConfig{Pool: pool, Name: name, Partitions: partitions,
		Poll: 5 * time.Millisecond, Notify: true}))(t)
}

// opened is a partition under a ledger in a store.
func opened(t testing.TB, o *leasepg.Outbox, partition int, store durable.Store) dispatch.Source {
	t.Helper()
	ledger := must(durable.New(durable.Config{Store: store, MaxRetries: lease.DefaultRetries}))(t)
	p := must(o.Open(t.Context(), o.Partitions()[partition], ledger))(t)
	return p.Source
}

func record(domain string, n int) dispatch.Record {
	return dispatch.Record{Domain: domain, Payload: strconv.AppendInt(nil, int64(n), 10)}
}

// put enqueues in a transaction of its own.
func put(t testing.TB, pool *pgxpool.Pool, o *leasepg.Outbox, records ...dispatch.Record) {
	t.Helper()
	noError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return o.Enqueue(t.Context(), tx, records...) }))
}

// take claims a partition.
func take(t testing.TB, s dispatch.Source) (floor int64, err error) {
	t.Helper()
	if floor, err = s.Committed(t.Context()); err != nil {
		t.Fatal(err)
	}
	return floor, err
}

// next fetches, and expects something.
func next(t testing.TB, s dispatch.Source, from int64, limit int) []dispatch.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	records, err := s.Fetch(ctx, from, limit)
	if err != nil {
		t.Fatalf("Fetch from %d: %v", from, err)
	}
	return records
}

// nothing expects that a Fetch finds nothing, though it looks a few times.
func nothing(t testing.TB, o *leasepg.Outbox, s dispatch.Source, from int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for seen := o.Looks(); o.Looks() < seen+5 && ctx.Err() == nil; time.Sleep(time.Millisecond) { // it looks by itself
		}
		cancel()
	}()
	if records, err := s.Fetch(ctx, from, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("Fetch from %d: %d records, %v, want none", from, len(records), err)
	}
}

func payloads(records []dispatch.Record) (all []string) {
	for _, r := range records {
		all = append(all, string(r.Payload))
	}
	return all
}

// What an open transaction does to other tables, or has only read of these, holds nothing up.
func TestOtherWritersHoldNothingUp(t *testing.T) {
	pool := migrated(t, 4)
	execute(t, pool, "CREATE TABLE IF NOT EXISTS others (n int)")
	o := outbox(t, pool, 1)
	s := opened(t, o, 0, durable.NewMemStore())
	from, _ := take(t, s)
	tx := must(pool.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	for _, sql := range []string{"INSERT INTO others VALUES (1)", "SELECT count(*) FROM stopbank.outbox_records"} {
		must(tx.Exec(t.Context(), sql))(t)
	}
	put(t, pool, o, record("a", 1))
	if got := payloads(next(t, s, from, 10)); !slices.Equal(got, []string{"1"}) || o.Held() != 0 {
		t.Errorf("L13: read %q, held for %v", got, o.Held())
	}
}

// producer is one of several that write at random, each transaction as it likes.
type producer struct {
	pool *pgxpool.Pool
	o    *leasepg.Outbox
	rnd  *rand.Rand
	keys int
	two  bool // the server knows PREPARE TRANSACTION

	committed, aborted, preparedTx int
}

var errAbort = errors.New("the user thinks better of it")

// transaction takes some keys' locks, counts them up and enqueues the count: in each key, records are to come as 1, 2, 3, …
func (p *producer) transaction(ctx context.Context) error {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	pause := func() {
		if p.rnd.IntN(4) == 0 {
			time.Sleep(time.Duration(p.rnd.ExpFloat64() * float64(2*time.Millisecond))) // a slow transaction
		}
	}
	if p.rnd.IntN(2) == 0 { // an early xid, so that xids and ids differ in order
		if _, err := tx.Exec(ctx, "SELECT pg_current_xact_id()"); err != nil {
			return err
		}
	}
	pause()
	keys := p.rnd.Perm(p.keys)[:1+p.rnd.IntN(3)]
	slices.Sort(keys) // or they would deadlock
	for _, k := range keys {
		write := func(tx pgx.Tx) error {
			var records []dispatch.Record
			for range 1 + p.rnd.IntN(3) {
				var n int
				if err := tx.QueryRow(ctx, "UPDATE outbox_keys SET n = n + 1 WHERE outbox = $1 AND k = $2 RETURNING n", p.o.Partitions()[0],
					k).Scan(&n); err != nil {
					return err
				}
				records = append(records, record(fmt.Sprint("key ", k), n))
			}
			pause()
			return p.o.Enqueue(ctx, tx, records...)
		}
		switch p.rnd.IntN(4) {
		case 0: // in a savepoint that is given up
			if err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return errors.Join(write(tx), errAbort) }); !errors.Is(err,
				errAbort) {
				return err
			}
		case 1: // in one that is kept
			if err := pgx.BeginFunc(ctx, tx, write); err != nil {
				return err
			}
		default:
			if err := write(tx); err != nil {
				return err
			}
		}
		pause()
	}
	switch dice := p.rnd.IntN(10); {
	case dice == 0:
		p.aborted++
		return tx.Rollback(ctx)
	case dice == 1 && p.two:
		p.preparedTx++
		id := fmt.Sprintf("stopbank %x", p.rnd.Uint64())
		if _, err := tx.Exec(ctx, "PREPARE TRANSACTION '"+id+"'"); err != nil {
			return err
		}
		pause()
		_, err := conn.Exec(ctx, "COMMIT PREPARED '"+id+"'")
		return err
	}
	p.committed++
	return tx.Commit(ctx)
}

// L13 on a server, with writers at random and one reader a partition: all that was committed is read once, in the order of its
// key.
func TestPropertyOutbox(t *testing.T) {
	const writers, partitions, keys = 6, 3, 12
	_, seed := ownertest.Budget()
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d (-torture.seed)", seed)
	pool := migrated(t, writers+partitions+1)
	execute(t, pool, "CREATE TABLE IF NOT EXISTS outbox_keys (outbox text, k int, n int NOT NULL, PRIMARY KEY (outbox, k)) WITH (fillfactor = 50)")
	name := fmt.Sprintf("%s/%d", t.Name(), ledgers.Add(1))
	o := reopened(t, pool, name, partitions)
	execute(t, pool, "INSERT INTO outbox_keys SELECT $1, generate_series(0, $2 - 1), 0", o.Partitions()[0], keys)
	two := ask(t, pool, "SELECT current_setting('max_prepared_transactions')") != "0"

	var written sync.WaitGroup
	quiet := must(leasepg.OpenOutbox(t.Context(), leasepg.OutboxConfig{Pool: pool, Name: name, Partitions: partitions}))(t)
	producers := make([]*producer, writers)
	for i := range producers {
		p := &producer{pool: pool, o: o, rnd: rand.New(rand.NewPCG(seed, uint64(i))), keys: keys}
		if producers[i] = p; i%2 == 0 && two {
			p.o, p.two = quiet, true // a transaction that notifies cannot be prepared
		}
		written.Go(func() {
			for range 150 {
				if err := p.transaction(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var over atomic.Bool
	var read sync.WaitGroup
	var mu sync.Mutex // guards last
	last := map[string]int{}
	for i := range partitions {
		s := opened(t, o, i, durable.NewMemStore())
		from, _ := take(t, s)
		rnd := rand.New(rand.NewPCG(seed, uint64(100+i)))
		read.Go(func() {
			for {
				ended := over.Load()
				end, err := s.(dispatch.Ended).End(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if ended && from >= end {
					return
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				records, err := s.Fetch(ctx, from, 1+rnd.IntN(20))
				cancel()
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
				for _, r := range records {
					mu.Lock()
					n, err := strconv.Atoi(string(r.Payload))
					if r.Offset < from || err != nil || n != last[r.Domain]+1 {
						t.Errorf("L13: %s: record %s at %d after %d", r.Domain, r.Payload, r.Offset, last[r.Domain])
					}
					last[r.Domain] = n
					mu.Unlock()
					from = r.Offset + 1
				}
				if len(records) > 0 && rnd.IntN(4) == 0 {
					if err := s.Commit(t.Context(), from); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	written.Wait()
	over.Store(true)
	read.Wait()
	for k := range keys {
		var n int
		noError(t, pool.QueryRow(t.Context(), "SELECT n FROM outbox_keys WHERE outbox = $1 AND k = $2", o.Partitions()[0], k).Scan(&n))
		if got := last[fmt.Sprint("key ", k)]; got != n {
			t.Errorf("L13: key %d: read up to %d of %d", k, got, n)
		}
	}
	total := producer{}
	for _, p := range producers {
		total.committed += p.committed
		total.aborted += p.aborted
		total.preparedTx += p.preparedTx
	}
	t.Logf("%d committed, %d rolled back, %d prepared first, %d looks", total.committed, total.aborted, total.preparedTx, o.Looks())
	if total.committed == 0 || total.aborted == 0 || two && total.preparedTx == 0 {
		t.Error("L13: too little happened")
	}
}

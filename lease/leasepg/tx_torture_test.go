// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file kills handlers that finish their records in their own transactions: their server's backend, their connection between
// a commit and its reply, and their process. At every stop the rows that they wrote and the ledger have to agree, record for
// record.

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/child"
	"github.com/stopbank/stopbank/lease/internal/journal"
	"github.com/stopbank/stopbank/lease/leasepg"
)

var kills = flag.Int("kills", 100, "how often TestPropertyKills kills")

const (
	bankVariable = "STOPBANK_BANK"
	bankKeys     = 40
	bankTables   = `
		CREATE TABLE bank_keys (key text PRIMARY KEY, enqueued bigint NOT NULL, done bigint NOT NULL);
		CREATE TABLE bank_effects (record bigint PRIMARY KEY, key text NOT NULL, n bigint NOT NULL, UNIQUE (key, n));
		CREATE INDEX ON bank_effects (key, record);
		CREATE TABLE bank_wrong (what text NOT NULL)`
)

// bank is one process's view of the work: an outbox of one partition, its ledger, and the rows that the handlers change.
type bank struct {
	pool   *pgxpool.Pool
	layout string
	part   dispatch.Partition
	outbox *leasepg.Outbox
}

// The two ways in which a ledger is written.
const (
	perRecord = "per record"
	perWindow = "per window"
)

// openBank connects through dial, if that is not nil, under a name by which the killer finds it.
func openBank(ctx context.Context, url, layout string, dial func(context.Context, string, string) (net.Conn, error)) (*bank, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 10
	cfg.ConnConfig.RuntimeParams["application_name"] = "stopbank_victim"
	if dial != nil {
		cfg.ConnConfig.DialFunc = dial
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	b := &bank{pool: pool, layout: layout}
	for range 100 { // the killer is at work already
		if err = b.open(ctx); err == nil {
			return b, nil
		}
	}
	pool.Close()
	return nil, err
}

func (b *bank) open(ctx context.Context) (err error) {
	b.outbox, err = leasepg.OpenOutbox(ctx, leasepg.OutboxConfig{Pool: b.pool, Name: "bank", Partitions: 1,
		Poll: 5 * time.Millisecond})
	if err != nil {
		return err
	}
	if b.layout == perWindow {
		ledger, err := leasepg.OpenJournal(ctx, b.pool, "bank/0", time.Minute, lease.Config{MaxRetries: 1 << 20})
		if err != nil {
			return err
		}
		b.part, err = b.outbox.Open(ctx, "bank/0", ledger)
		return err
	}
	store, err := leasepg.OpenStore(ctx, leasepg.StoreConfig{Pool: b.pool, Name: "bank/0"})
	if err != nil {
		return err
	}
	ledger, err := durable.New(durable.Config{Store: store, MaxRetries: 1 << 20})
	if err != nil {
		return err
	}
	b.part, err = b.outbox.Open(ctx, "bank/0", ledger)
	return err
}

// run works until ctx is done, and returns when nothing is in work.
func (b *bank) run(ctx context.Context) error {
	d, err := dispatch.New(dispatch.Partition{Name: "bank/0", Ledger: b.part.Ledger, Source: b.part.Source}, dispatch.Config{
		Handler:     b.handle,
		MaxInFlight: 8, MaxBuffered: 256, MaxPerDomain: 16, Backoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond,
		CommitEvery: 50 * time.Millisecond,
		DeadLetter: func(ctx context.Context, letter dispatch.DeadLetter) error {
			return b.wrong(ctx, fmt.Errorf("given up: %w", letter.Err))
		},
	})
	if err != nil {
		return err
	}
	err = d.Run(ctx)
	b.close()
	if !errors.Is(err, dispatch.ErrDrain) {
		return err
	}
	return nil // the killer does not stop for a drain
}

// close gives the ledger back, if the killer lets it.
func (b *bank) close() {
	if l, ok := b.part.Ledger.(*journal.Ledger); ok {
		_ = l.Close(context.Background())
	}
}

// handle counts the record's key up from the number before it, once.
func (b *bank) handle(ctx context.Context, job dispatch.Job) error {
	n, err := strconv.ParseInt(string(job.Record.Payload), 10, 64)
	if err != nil {
		return b.wrong(ctx, err)
	}
	skipped := false
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, "UPDATE bank_keys SET done = $2 WHERE key = $1 AND done = $2 - 1", job.Record.Domain, n)
		if err != nil {
			return err
		}
		skipped = done.RowsAffected() == 0
		if rand.IntN(2) == 0 {
			time.Sleep(time.Duration(rand.Int64N(int64(2 * time.Millisecond)))) // a slow transaction
		}
		if _, err := tx.Exec(ctx, "INSERT INTO bank_effects VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", job.Record.Offset,
			job.Record.Domain, n); err != nil {
			return err
		}
		return leasepg.SucceedTx(ctx, tx, job.Ledger, job.Lease)
	})
	if err == nil && skipped { // who has lost the lease may come too late, but may not finish
		return b.wrong(ctx, fmt.Errorf("%s: record %d was finished out of its order, or twice", job.Record.Domain, n))
	}
	return err
}

// wrong has the test fail.
func (b *bank) wrong(ctx context.Context, err error) error {
	for range 100 {
		if _, failed := b.pool.Exec(ctx, "INSERT INTO bank_wrong VALUES ($1)", err.Error()); failed == nil {
			break
		}
	}
	return err
}

// bankChild makes this process one that works until it is killed, if the test started it as one.
func bankChild() {
	layout, at, found := strings.Cut(os.Getenv(bankVariable), " at ")
	if !found {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // the parent is gone
	}()
	b, err := openBank(context.Background(), at, layout, nil)
	if err == nil {
		fmt.Println("works")
		err = b.run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// cutting is a connection that is cut now and then when the server has answered a commit, before the client reads that.
type cutting struct {
	net.Conn
	cuts  *atomic.Int64
	armed atomic.Bool
}

func (c *cutting) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("commit")) && rand.IntN(3) == 0 {
		c.armed.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *cutting) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.armed.Load() {
		c.cuts.Add(1)
		_ = c.Close() // the server's answer is lost either way
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// judge compares what the handlers wrote with what the ledger says, when nobody is at work.
func (b *bank) judge(t *testing.T) (records int) {
	t.Helper()
	for ask(t, b.pool, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'stopbank_victim' AND datname = current_database()") != "0" {
		time.Sleep(time.Millisecond) // a backend whose client was killed may still be busy with its last words
	}
	if wrong := ask(t, b.pool, "SELECT coalesce(string_agg(what, '; '), '') FROM bank_wrong"); wrong != "" {
		t.Fatal(wrong)
	}
	noError(t, b.open(t.Context()))
	defer b.close()
	ledger := b.part.Ledger
	for k := range bankKeys {
		key := fmt.Sprint("key ", k)
		v := must(ledger.Inspect(t.Context(), key))(t)
		if b.layout == perWindow {
			v.Processed = b.finished(t, key, v)
		}
		var above, all, done, enqueued int
		if err := b.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM bank_effects WHERE key = $1 AND record >= $2),
				(SELECT count(*) FROM bank_effects WHERE key = $1), done, enqueued FROM bank_keys WHERE key = $1`, key, v.Floor).Scan(&above, &all, &done, &enqueued); err != nil {
			t.Fatal(err)
		}
		left := must(b.left(t, key, v.Floor))(t)
		if v.Processed != above || v.Failed != 0 || all != done || left != enqueued-all {
			t.Fatalf("%s: the ledger has %d done above its floor, and %d rows are; %d rows in all, counted to %d; %d of %d enqueued are left; %+v",
				key, v.Processed, above, all, done, left, enqueued, v)
		}
		records += all
	}
	return records
}

// finished counts the records of a key above the floor that a ledger written per window knows to be done. Below the position of
// the outbox it is not asked. Whatever it has leased or finds free is released.
func (b *bank) finished(t *testing.T, key string, v lease.View) (n int) {
	t.Helper()
	release := func(token lease.Token) { noError(t, b.part.Ledger.Release(t.Context(), key, token)) }
	if v.Lease != nil {
		if l, err := b.part.Ledger.Reclaim(t.Context(), key, v.Lease.Token); err == nil {
			release(l.Token)
		} else if done := (*lease.LeaseNotFoundError)(nil); !errors.As(err, &done) || done.Status != lease.AlreadyProcessed {
			t.Fatalf("%s: %v", key, err)
		}
	}
	noError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM bank_effects e, stopbank.outbox_positions p
		WHERE e.key = $1 AND e.record >= $2 AND e.record < p.floor AND p.outbox = 'bank'`, key, v.Floor).Scan(&n))
	rows, _ := b.pool.Query(t.Context(), `SELECT id FROM stopbank.outbox_records WHERE outbox = 'bank' AND domain = $1 ORDER BY id`,
		[]byte(key))
	for _, id := range must(pgx.CollectRows(rows, pgx.RowTo[int64]))(t) {
		a := must(b.part.Ledger.TryAcquire(t.Context(), key, id))(t)
		if a.Status == lease.Acquired {
			release(a.Lease.Token)
		}
		if a.Status != lease.AlreadyProcessed {
			break
		}
		n++
	}
	return n
}

// left counts the records of a key that are in the outbox and have no effect.
func (b *bank) left(t *testing.T, key string, floor int64) (n int, err error) {
	err = b.pool.QueryRow(t.Context(), `SELECT count(*) FROM stopbank.outbox_records r WHERE outbox = 'bank' AND domain = $1
		AND id >= $2 AND NOT EXISTS (SELECT FROM bank_effects e WHERE e.record = r.id)`, []byte(key), floor).Scan(&n)
	return n, err
}

// enqueue adds records for all keys, each numbered by its key's row.
func (b *bank) enqueue(t *testing.T, each int) {
	t.Helper()
	noError(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		var records []dispatch.Record
		for k := range bankKeys {
			key := fmt.Sprint("key ", k)
			var last int
			if err := tx.QueryRow(t.Context(), "UPDATE bank_keys SET enqueued = enqueued + $2 WHERE key = $1 RETURNING enqueued", key,
				each).Scan(&last); err != nil {
				return err
			}
			for n := last - each + 1; n <= last; n++ {
				records = append(records, record(key, n))
			}
		}
		return b.outbox.Enqueue(t.Context(), tx, records...)
	}))
}

// L14 under fire: whatever is killed when, a record is done in the ledger exactly if the rows of its handler are there.
func TestPropertyKills(t *testing.T) {
	for _, layout := range []string{perRecord, perWindow} {
		t.Run(layout, func(t *testing.T) { propertyKills(t, layout) })
	}
}

func propertyKills(t *testing.T, layout string) {
	at := must(need(t).Database(t.Context()))(t)
	pool := connect(t, at, 6)
	noError(t, leasepg.Migrate(t.Context(), pool))
	execute(t, pool, bankTables, pgx.QueryExecModeSimpleProtocol)
	execute(t, pool, "INSERT INTO bank_keys SELECT 'key ' || k, 0, 0 FROM generate_series(0, $1 - 1) k", bankKeys)
	judge := &bank{pool: pool, layout: layout}
	noError(t, judge.open(t.Context()))
	judge.close()
	var ended, cuts atomic.Int64
	processes, stops := 0, 0
	total := func() int { return int(ended.Load()+cuts.Load()) + processes }
	for total() < *kills {
		judge.enqueue(t, 10)
		killBackends(t, judge, at, &ended, &cuts)
		judge.judge(t)
		killProcess(t, layout+" at "+at)
		processes++
		judge.judge(t)
		stops += 2
	}
	b := must(openBank(t.Context(), at, layout, nil))(t)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- b.run(ctx) }()
	for ask(t, pool, "SELECT count(*) FROM bank_keys WHERE done < enqueued") != "0" {
		time.Sleep(10 * time.Millisecond) // nothing tells
	}
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
	b.pool.Close()
	records := judge.judge(t)
	t.Logf("%d kills: %d backends ended, %d connections cut between commit and reply, %d processes killed; %d records; rows and ledger compared at %d stops, no difference",
		total(), ended.Load(), cuts.Load(), processes, records, stops+1)
}

// killBackends has a dispatcher work while its backends are ended and its connections are cut, fifty times or so.
func killBackends(t *testing.T, judge *bank, at string, ended, cuts *atomic.Int64) {
	t.Helper()
	dialer := &net.Dialer{}
	b := must(openBank(t.Context(), at, judge.layout, func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &cutting{Conn: conn, cuts: cuts}, nil
	}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() {
		if err := b.run(ctx); err != nil {
			t.Error(err)
		}
	})
	for until := ended.Load() + cuts.Load() + 50; ended.Load()+cuts.Load() < until && !t.Failed(); {
		var killed bool
		err := judge.pool.QueryRow(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE application_name = 'stopbank_victim' AND datname = current_database() AND xact_start IS NOT NULL ORDER BY random() LIMIT 1`).Scan(&killed)
		switch {
		case errors.Is(err, pgx.ErrNoRows): // nobody is in a transaction
			if ask(t, judge.pool, "SELECT count(*) FROM bank_keys WHERE done < enqueued") == "0" {
				judge.enqueue(t, 5)
			}
		case err != nil:
			t.Error(err)
		case killed:
			ended.Add(1)
		}
		time.Sleep(time.Duration(rand.Int64N(int64(4 * time.Millisecond)))) // as long as chance says
	}
	cancel()
	work.Wait()
	b.pool.Close()
}

// killProcess has a process of its own work, and kills it.
func killProcess(t *testing.T, at string) {
	t.Helper()
	p := must(child.Start(t.Context(), bankVariable, at))(t)
	said := make([]byte, len("works\n"))
	if _, err := io.ReadFull(p, said); err != nil || string(said) != "works\n" {
		t.Errorf("the process says %q, %v", said, err)
	}
	time.Sleep(time.Duration(rand.Int64N(int64(80 * time.Millisecond)))) // it works
	p.Kill()
	_ = p.Wait() // killed
}

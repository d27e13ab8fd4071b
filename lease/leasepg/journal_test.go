// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file is about ledgers that are written per window: whose they are, what becomes of late and lost statements, and the
// transactions that finish their records.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/journal"
	"github.com/stopbank/stopbank/lease/leasepg"
)

func ledgerName(t testing.TB) string { return fmt.Sprintf("%s/%d", t.Name(), ledgers.Add(1)) }

func openJournal(t testing.TB, pool *pgxpool.Pool, name string) *journal.Ledger {
	t.Helper()
	l := must(leasepg.OpenJournal(t.Context(), pool, name, time.Minute, lease.Config{MaxRetries: 3}))(t)
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

func leaseOf(t testing.TB, l lease.Ledger, domain string, offset int64) lease.Lease {
	t.Helper()
	a, err := l.TryAcquire(t.Context(), domain, offset)
	if err != nil || a.Status != lease.Acquired {
		t.Fatalf("TryAcquire(%s, %d) = %+v, %v", domain, offset, a, err)
	}
	return a.Lease
}

// A ledger stays as it was begun: the other layout is refused by name, by a Group too.
func TestLayoutsAreNotMixed(t *testing.T) {
	pool := migrated(t, 4)
	refused := func(what string, err error, name string) {
		t.Helper()
		var invalid *lease.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "leasepg.GroupConfig.Journal" || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", what, err)
		}
	}
	outbox := must(leasepg.OpenOutbox(t.Context(), leasepg.OutboxConfig{Pool: pool, Name: ledgerName(t), Partitions: 2}))(t)
	inJournal, inRows := outbox.Partitions()[0], outbox.Partitions()[1]
	leaseOf(t, openJournal(t, pool, inJournal), "A", 1)
	leaseOf(t, ledgerIn(t, named(t, pool, inRows)), "A", 1)
	_, err := leasepg.OpenStore(t.Context(), leasepg.StoreConfig{Pool: pool, Name: inJournal})
	refused("a store", err, inJournal)
	_, err = leasepg.OpenJournal(t.Context(), pool, inRows, time.Minute, lease.Config{})
	refused("a journal", err, inRows)
	for _, journal := range []bool{false, true} {
		wrong := inJournal
		if journal {
			wrong = inRows
		}
		ctx, cancel := context.WithCancel(t.Context())
		found := make(chan error, 2)
		g := must(leasepg.OpenGroup(t.Context(), leasepg.GroupConfig{Conn: pool.Config().ConnConfig, Group: ledgerName(t), Outbox: outbox,
			Journal: journal, OnError: func(error) {}}))(t)
		noError(t, g.Hold(ctx, func(ctx context.Context, p dispatch.Partition) {
			if p.Name == wrong {
				_, _, err := p.Open(ctx)
				found <- err
				cancel()
			} else if p.Open != nil {
				found <- errors.New("the right layout is refused too")
			}
			<-ctx.Done()
		}))
		refused(fmt.Sprintf("a group, Journal %t", journal), <-found, wrong)
	}
}

// A claim ends the earlier ones, whatever the server's clock says; tokens rise over claims.
func TestClaims(t *testing.T) {
	pool := migrated(t, 4)
	name := ledgerName(t)
	before := time.Now().Unix()
	first := openJournal(t, pool, name)
	held := leaseOf(t, first, "A", 1)
	if claim := int64(held.Token >> 29); claim < before-60 || claim > before+60 {
		t.Errorf("the first claim is %d, at %d", claim, before)
	}
	// The server's clock was ahead once, and is right again.
	execute(t, pool, "UPDATE stopbank.lease_journals SET claim = claim + 1000000 WHERE ledger = $1", name)
	for range 3 {
		next := openJournal(t, pool, name)
		a := must(next.TryAcquire(t.Context(), "A", 1))(t) // found by name after the second time
		later := a.Lease
		if a.Status == lease.AlreadyAcquired {
			later = must(next.Reclaim(t.Context(), "A", later.Token))(t)
		}
		if later.Token <= held.Token || later.Token>>29 < lease.Token(before+1000000) {
			t.Errorf("L9: token %d after %d", later.Token, held.Token)
		}
		held = later
	}
	execute(t, pool, "UPDATE stopbank.lease_journals SET claim = 1 WHERE ledger = $1", name)
	if _, err := leasepg.OpenJournal(t.Context(), pool, name, time.Minute, lease.Config{}); !errors.Is(err, durable.ErrCorrupt) {
		t.Errorf("claims that were put back: %v", err)
	}
	execute(t, pool, "UPDATE stopbank.lease_journals SET claim = 1::bigint << 34 WHERE ledger = $1", name)
	if _, err := leasepg.OpenJournal(t.Context(), pool, name, time.Minute, lease.Config{}); !errors.Is(err, durable.ErrExhausted) {
		t.Errorf("claims that are used up: %v", err)
	}
	if _, err := first.Offer(t.Context(), "B", 2); !errors.Is(err, dispatch.ErrLost) || !errors.Is(err, journal.ErrClaimed) {
		t.Errorf("L17: a former owner's Offer: %v", err)
	}
}

// A statement whose reply was lost is known by its number; one that is carried out late changes nothing; and a journal that was
// put back is named.
func TestEntriesAreNumbered(t *testing.T) {
	pool := migrated(t, 4)
	name := ledgerName(t)
	s := must(leasepg.JournalStore(t.Context(), pool, name))(t)
	must(s.Claim(t.Context()))(t)
	appends := func(entry string) error {
		_, err := s.Append(t.Context(), []byte(entry))
		return err
	}
	noError(t, appends("a"))
	late := func(number int) { // as if its reply had been lost, or it had been under way until now
		execute(t, pool, leasepg.AppendEntry, name, claimOf(t, pool, name), number, []byte("late"))
	}
	late(2)
	noError(t, appends("b"))
	late(3)
	late(1)
	var all []string
	noError(t, s.Read(t.Context(), func(entry []byte) error {
		all = append(all, string(entry))
		return nil
	}))
	if strings.Join(all, " ") != "a late b" {
		t.Errorf("L17: entries %q", all)
	}
	execute(t, pool, "UPDATE stopbank.lease_journals SET entries = 1 WHERE ledger = $1", name)
	if err := appends("c"); !errors.Is(err, journal.ErrClaimed) || !strings.Contains(err.Error(), "put back") {
		t.Errorf("a journal that was put back: %v", err)
	}
}

func claimOf(t testing.TB, pool *pgxpool.Pool, name string) (claim int64) {
	t.Helper()
	noError(t, pool.QueryRow(t.Context(), "SELECT claim FROM stopbank.lease_journals WHERE ledger = $1", name).Scan(&claim))
	return claim
}

// The journal is as long as what the next owner has to know, not as all that was done.
func TestJournalsStayShort(t *testing.T) {
	pool := migrated(t, 4)
	name := ledgerName(t)
	l := openJournal(t, pool, name)
	const records = 60_000
	for i := range int64(records) {
		held := leaseOf(t, l, fmt.Sprint("k", i%50), i)
		if _, err := l.Succeed(t.Context(), held.Domain, held.Token); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 999 {
			noError(t, l.Compact(t.Context(), i-100))
		}
	}
	noError(t, l.Close(t.Context()))
	var size int64
	noError(t, pool.QueryRow(t.Context(), "SELECT sum(length(entry)) FROM stopbank.lease_entries WHERE ledger = $1", name).Scan(&size))
	if size > 80<<10 {
		t.Errorf("%d bytes of journal after %d records", size, records)
	}
	next := openJournal(t, pool, name)
	for i := int64(records - 150); i < records; i++ {
		if a, err := next.TryAcquire(t.Context(), fmt.Sprint("k", i%50), i); err != nil || a.Status != lease.AlreadyProcessed {
			t.Fatalf("L17: %d: %+v, %v", i, a, err)
		}
	}
}

// L14 with a ledger per window: a record is done if its handler's transaction was committed, whoever dies; and who has lost the
// lease cannot commit. No transaction holds up another key, or the partition.
func TestSucceedTxPerWindow(t *testing.T) {
	pool := migrated(t, 4)
	name := ledgerName(t)
	first := openJournal(t, pool, name)
	finish := func(tx pgx.Tx, l lease.Ledger, held lease.Lease) error {
		return leasepg.SucceedTx(t.Context(), tx, l, held)
	}
	finished := func(l lease.Ledger, held lease.Lease) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return finish(tx, l, held) })
	}

	committed, rolledBack, unsure := leaseOf(t, first, "committed", 1), leaseOf(t, first, "rolled back", 2), leaseOf(t, first, "unsure", 3)
	noError(t, finished(first, committed))
	tx := must(pool.Begin(t.Context()))(t)
	noError(t, finish(tx, first, rolledBack))
	if _, err := first.Fail(t.Context(), "unsure", unsure.Token); err != nil { // another key, while the transaction is open
		t.Fatal(err)
	}
	noError(t, tx.Rollback(t.Context()))
	if _, err := first.Fail(t.Context(), rolledBack.Domain, rolledBack.Token); err != nil {
		t.Errorf("L14: rolled back, and Fail: %v", err)
	}
	noError(t, finished(first, unsure)) // its reply is lost, and the handler fails
	var done *lease.LeaseNotFoundError
	if _, err := first.Fail(t.Context(), "unsure", unsure.Token); !errors.As(err, &done) || done.Status != lease.AlreadyProcessed {
		t.Errorf("L14: committed, and Fail: %v", err)
	}
	other := committed
	other.Offset++
	if err := finished(first, other); !errors.Is(err, lease.ErrTokenMismatch) {
		t.Errorf("a lease on another offset: %v", err)
	}
	if err := finished(first, unsure); !errors.Is(err, lease.ErrLeaseNotFound) {
		t.Errorf("a second time: %v", err)
	}
	stuck, idle := leaseOf(t, first, "stuck", 4), leaseOf(t, first, "idle", 5)

	second := openJournal(t, pool, name) // the first is frozen
	if a, err := second.TryAcquire(t.Context(), "committed", 1); err != nil || a.Status != lease.AlreadyProcessed {
		t.Errorf("L14: committed, and for the next owner: %+v, %v", a, err)
	}
	late := must(pool.Begin(t.Context()))(t)
	noError(t, finish(late, first, stuck)) // before the next owner leases it
	answered := make(chan lease.Acquisition)
	go func() {
		a, err := second.TryAcquire(t.Context(), "stuck", 4)
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	again := leaseOf(t, second, "idle", 5) // does not wait for it
	if err := finished(first, idle); !errors.Is(err, lease.ErrTokenMismatch) {
		t.Errorf("L14: a former owner's transaction: %v", err)
	}
	select {
	case a := <-answered:
		t.Errorf("L14: %+v, while the transaction of another owner is open", a)
	default:
	}
	noError(t, late.Commit(t.Context()))
	if a := <-answered; a.Status != lease.AlreadyProcessed {
		t.Errorf("L14: %+v, after another owner has committed", a)
	}
	noError(t, finished(second, again))
	if c, err := second.Succeed(t.Context(), "idle", again.Token); err != nil || c.Status != lease.NoBacklog {
		t.Errorf("%+v, %v", c, err)
	}
	if err := leasepg.SucceedTx(t.Context(), nil, second, again); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("without a transaction: %v", err)
	}
	readOnly := begin(t, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err := finish(readOnly, second, leaseOf(t, second, "unwritten", 6)); !errors.Is(err, durable.ErrStore) {
		t.Errorf("in a transaction that may not write: %v", err)
	}
}

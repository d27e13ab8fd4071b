// SPDX-License-Identifier: Apache-2.0

package leasepg

// This file finishes a record in the transaction that did its work: that transaction also updates the ledger's row.

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/journal"
	"github.com/stopbank/stopbank/lease/internal/nilcheck"
)

// SucceedTx is Succeed in tx: if tx is committed the record is done, and if it is not, nothing has happened. A handler passes
// its Job's Ledger and Lease, commits, and returns nil or the commit's error; the Dispatcher then reads the outcome from the
// ledger. The ledger must be the one that granted l, as Job.Ledger is: durable.New's over a store of OpenStore, or of a Group,
// in tx's database. It rejects a lease on another offset than its own with *lease.TokenMismatchError.
//
// Call it last. It locks the domain's row until tx ends, so calls of the ledger on that domain, including an Offer of
// the next record, wait as long. With GroupConfig.Journal it locks a row of the domain's own, for which a call waits that takes
// this lease from its holder. It blocks for two round trips on tx's connection, three if another process has
// written the row since, and for an earlier writer of that row; it uses no other connection.
//
// Errors: *lease.TokenMismatchError and *lease.LeaseNotFoundError if the lease is lost; *lease.InvalidError naming the
// argument, also for a transaction of another database, or the schema; durable.ErrStore with the database's error, such
// as a serialization failure, or a transaction that is over, aborted or read-only. After an error roll tx back: its writes
// must not be kept.
func SucceedTx(ctx context.Context, tx pgx.Tx, ledger lease.Ledger, l lease.Lease) error {
	missing := nilcheck.Required(tx)
	switch {
	case ctx == nil:
		return noContext()
	case missing != "":
		return &lease.InvalidError{Field: "tx", Value: missing, Allowed: "a transaction"}
	}
	if inJournal, ok := ledger.(*journal.Ledger); ok {
		return finishIn(ctx, tx, inJournal, l)
	}
	kept, ok := ledger.(interface { // of durable.New
		Store() durable.Store
		SucceedIn(ctx context.Context, view durable.Store, l lease.Lease) (lease.Completion, error)
	})
	if !ok {
		return &lease.InvalidError{Field: "ledger", Value: fmt.Sprintf("a %T", ledger),
			Allowed: "a ledger made by durable.New, or of a Group"}
	}
	store, _ := kept.Store().(*store)
	if store == nil || store.pool == nil {
		return &lease.InvalidError{Field: "ledger", Value: fmt.Sprintf("in a %T", kept.Store()),
			Allowed: "a ledger in a store of leasepg.OpenStore"}
	}
	_, err := kept.SucceedIn(ctx, &within{store: store, tx: tx}, l)
	return err
}

// within is a ledger's store as a transaction sees it.
type within struct {
	*store
	tx pgx.Tx
}

// Load locks the record until the transaction ends. The ledger's own is left to all.
func (w *within) Load(ctx context.Context, name string) (state []byte, version uint64, err error) {
	want, err := newest()
	if err != nil {
		return nil, 0, err
	}
	query := load
	if name != "" {
		query += " FOR UPDATE"
	}
	var id string
	var schema int
	var found int64
	domain, _ := key(name)
	batch := new(pgx.Batch)
	batch.Queue("SELECT version, " + identity + " FROM stopbank.lease_schema").
		QueryRow(func(row pgx.Row) error { return row.Scan(&schema, &id) })
	batch.Queue(query, w.ledger, domain).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(&found, &state); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return nil
	})
	switch err := w.tx.SendBatch(ctx, batch).Close(); {
	case err != nil:
		return nil, 0, transaction("succeed", err)
	case schema != want:
		return nil, 0, schemaError(schema, want)
	case id != w.identity:
		return nil, 0, otherDatabase()
	}
	return state, uint64(found), nil
}

// Swap writes the record that Load has locked.
func (w *within) Swap(ctx context.Context, name string, old uint64, state []byte, index durable.Index) (uint64, error) {
	it := swapOf(name, old, state, index)
	query, args := w.statement(&it)
	done, err := w.tx.Exec(ctx, query, args...)
	switch {
	case err != nil:
		return 0, transaction("succeed", err)
	case done.RowsAffected() == 0:
		return 0, fmt.Errorf("leasepg: %w: not at version %d", durable.ErrConflict, old)
	}
	return it.version, nil
}

// transaction says what is wrong with a transaction, if that is what err is about.
func transaction(call string, err error) error {
	var pgErr *pgconn.PgError
	state := func(state string) error {
		return fmt.Errorf("leasepg: %s: the transaction is %s; allowed: an open one that may write: %w", call, state, err)
	}
	switch errors.As(err, &pgErr); {
	case errors.Is(err, pgx.ErrTxClosed):
		return state("over")
	case pgErr != nil && pgErr.Code == aborted:
		return state("aborted")
	case pgErr != nil && pgErr.Code == readOnly:
		return state("read-only")
	case absent(err):
		want, unread := newest()
		return errors.Join(schemaError(0, want), unread)
	}
	return fmt.Errorf("leasepg: %s: %w", call, err)
}

const aborted = "25P02"

// elsewhere says why a transaction has not taken what the database of id would take.
func elsewhere(ctx context.Context, tx pgx.Tx, id string) error {
	want, err := newest()
	if err != nil {
		return err
	}
	var found int
	var at string
	if err := tx.QueryRow(ctx, "SELECT version, "+identity+" FROM stopbank.lease_schema").Scan(&found, &at); err != nil {
		return transaction("enqueue", err)
	}
	switch {
	case found != want:
		return schemaError(found, want)
	case at != id:
		return otherDatabase()
	}
	return errors.New("leasepg: enqueue: the database left records out: is there a trigger or a policy on stopbank.outbox_records?")
}

// SPDX-License-Identifier: Apache-2.0

package leasepg

// This file is a partition of an outbox as a dispatch.Source: how it is opened, read, committed and cleaned up.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/nilcheck"
)

// partition is read by one Dispatcher.
type partition struct {
	*Outbox
	name   string
	number int

	log string // what tells the table from one that was restored; "": the ledger is restored with it

	claim int64 // this owner's number among all that ever claimed the position
	floor int64 // committed; only Commit uses it, after Committed

	// Only Fetch uses these: from the id from on there is nothing up to none.
	from, none int64
}

var (
	_ dispatch.Source = (*partition)(nil)
	_ dispatch.Ended  = (*partition)(nil)

	_ dispatch.Identified = (*partition)(nil)
)

const (
	askPosition = `SELECT coalesce(p.floor, o.first), (SELECT last_value - (NOT is_called)::int FROM stopbank.outbox_ids),
			(SELECT id FROM stopbank.outbox_records r WHERE r.outbox = $1 AND r.partition = $2 ORDER BY id LIMIT 1)
		FROM stopbank.outboxes o LEFT JOIN stopbank.outbox_positions p ON p.outbox = o.outbox AND p.partition = $2 WHERE o.outbox = $1`
	askTable = `SELECT system_identifier || '/' || 'stopbank.outbox_records'::regclass::oid FROM pg_control_system()`
	claim    = `INSERT INTO stopbank.outbox_positions AS p (outbox, partition, claims, floor)
		SELECT outbox, $2, 1, first FROM stopbank.outboxes WHERE outbox = $1
		ON CONFLICT (outbox, partition) DO UPDATE SET claims = p.claims + 1 RETURNING claims, floor`
	askRun = `SELECT extract(epoch FROM pg_postmaster_start_time())::text`
	// A page ends with the record by which it has $6 bytes. Lengths are read without the values.
	fetch = `SELECT id, domain, payload, headers, enqueued FROM (
			SELECT *, sum(bytes) OVER (ORDER BY id) - bytes AS before FROM (
				SELECT *, octet_length(payload) + coalesce(octet_length(headers), 0) AS bytes FROM stopbank.outbox_records
				WHERE outbox = $1 AND partition = $2 AND id BETWEEN $3 AND $4 ORDER BY id LIMIT $5) r
		) r WHERE before < $6 ORDER BY id`
	maxPage = 1 << 20
	askEnd  = `SELECT coalesce((SELECT id + 1 FROM stopbank.outbox_records r
			WHERE r.outbox = $1 AND r.partition = $2 AND r.id >= p.floor ORDER BY id DESC LIMIT 1), p.floor),
			(SELECT last_value - (NOT is_called)::int FROM stopbank.outbox_ids)
		FROM stopbank.outbox_positions p WHERE p.outbox = $1 AND p.partition = $2`

	// The floor moves to $4, or over as many rows as may be deleted at once, and they go in the same statement: so no row that was
	// done lies below a floor, and one that does was put back. Without the claim nothing moves, and nothing ever moves back: a
	// commit whose context has ended may be carried out after a later one.
	commit = `WITH done AS (
			SELECT count(*) AS n, max(id) AS last FROM (
				SELECT id FROM stopbank.outbox_records WHERE outbox = $1 AND partition = $2 AND id >= $3 AND id < $4 ORDER BY id LIMIT $5) r
		), moved AS (
			UPDATE stopbank.outbox_positions p SET floor = greatest(p.floor, CASE WHEN d.n < $5 THEN $4 ELSE d.last + 1 END)
			FROM done d WHERE p.outbox = $1 AND p.partition = $2 AND p.claims = $6 RETURNING p.floor
		), deleted AS (
			DELETE FROM stopbank.outbox_records r USING moved
			WHERE r.outbox = $1 AND r.partition = $2 AND r.id >= $3 AND r.id < moved.floor
		) SELECT floor FROM moved`
	deleting = 5000

	// soon is the first pause while a transaction keeps the horizon where it is.
	soon = time.Millisecond
)

// Open returns a partition of the outbox for a Dispatcher or for GroupConfig.Open: its Source, and the ledger to process it
// under, which may be in any engine. One that is elsewhere is for this table: after pg_restore has made another one, or after
// pg_upgrade, the partition is rewound until leasectl has adopted it. Open claims nothing: the Dispatcher does. The statement
// that commits a floor also deletes the records below it. Open rejects an outbox in an earlier state than the ledger (it "was
// put back"): new records in it would be taken for done. It blocks for one or two round trips and the ledger's Inspect. Other
// errors: *lease.InvalidError, the ledger's, or the database's.
func (o *Outbox) Open(ctx context.Context, name string, ledger lease.Ledger) (dispatch.Partition, error) {
	if err := o.made(ctx); err != nil {
		return dispatch.Partition{}, err
	}
	number := slices.Index(o.Partitions(), name)
	missing := nilcheck.Required(ledger)
	switch {
	case number < 0:
		return dispatch.Partition{}, &lease.InvalidError{Field: "partition", Value: name,
			Allowed: "a name that Outbox.Partitions returns"}
	case missing != "":
		return dispatch.Partition{}, &lease.InvalidError{Field: "ledger", Value: missing, Allowed: "a ledger"}
	}
	s := &partition{Outbox: o, name: name, number: number}
	var floor, drawn int64
	var first *int64
	if err := o.cfg.Pool.QueryRow(ctx, askPosition, o.cfg.Name, number).Scan(&floor, &drawn, &first); err != nil {
		return dispatch.Partition{}, s.failed(err)
	}
	if err := s.identify(ctx, ledger); err != nil {
		return dispatch.Partition{}, err
	}
	known, err := ledger.Inspect(ctx, o.cfg.Name) // any domain: it is the floor that counts
	switch {
	case err != nil:
		return dispatch.Partition{}, err
	case drawn < floor-1:
		err = rewound(name, "the greatest id drawn", drawn, floor-1)
	case first != nil && *first < floor:
		err = rewound(name, "the first record", *first, floor)
	case known.Floor > floor:
		err = rewound(name, "the position", floor, known.Floor)
	}
	if err != nil {
		return dispatch.Partition{}, err
	}
	return dispatch.Partition{Name: name, Source: s, Ledger: ledger}, nil
}

// identify learns which table this is, unless the ledger is restored with it.
func (s *partition) identify(ctx context.Context, ledger lease.Ledger) error {
	if kept, ok := ledger.(interface{ Store() durable.Store }); ok {
		if beside, ok := kept.Store().(*store); ok && beside.identity == s.identity {
			return nil
		}
	}
	var table string
	var server *pgconn.PgError
	switch err := s.cfg.Pool.QueryRow(ctx, askTable).Scan(&table); {
	case errors.As(err, &server) && server.Code == insufficientPrivilege: // PUBLIC has it, unless somebody took it away
	case err != nil:
		return s.failed(err)
	default:
		s.log = "outbox " + s.cfg.Name + " of table " + table
	}
	return nil
}

const insufficientPrivilege = "42501"

// opener is GroupConfig.Open for the partitions of the outbox, each with a ledger beside it: one that is written per window if
// fresh is not 0, which is how long after a write it grants leases.
func (o *Outbox) opener(cfg lease.Config, fresh time.Duration) (func(ctx context.Context, name string) (dispatch.Partition, error),
	error) {
	ledger := func(name string) (lease.Ledger, error) {
		if err := checkLedgerName(name); err != nil {
			return nil, err
		}
		store := newStore(StoreConfig{Pool: o.cfg.Pool, Name: name}, o.identity)
		return durable.New(durable.Config{Store: store, MaxRetries: cfg.MaxRetries, MaxBacklog: cfg.MaxBacklog, Observer: cfg.Observer})
	}
	for _, name := range o.Partitions() { // of a bad configuration the caller is told at once
		if _, err := ledger(name); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, name string) (p dispatch.Partition, err error) {
		if fresh == 0 {
			err := checkLayout(ctx, o.cfg.Pool, name, false)
			if err != nil {
				return p, err
			}
			l, err := ledger(name)
			if err != nil {
				return p, err
			}
			return o.Open(ctx, name, l)
		}
		l, err := openJournal(ctx, &journalStore{pool: o.cfg.Pool, ledger: name, identity: o.identity}, fresh, cfg)
		if err != nil {
			return p, err
		}
		if p, err = o.Open(ctx, name, l); err != nil {
			closeLedger(l, fresh)
		}
		return p, err
	}, nil
}

// closeLedger closes a ledger that can be closed.
func closeLedger(ledger lease.Ledger, within time.Duration) {
	if l, ok := ledger.(interface {
		Close(ctx context.Context) error
	}); ok {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		_ = l.Close(ctx) // without it the next owner takes more care than it need
	}
}

func (s *partition) failed(err error) error {
	return fmt.Errorf("leasepg: outbox, partition %s: %w", s.name, err)
}

// Identity implements dispatch.Identified. Who restores a database ends its sessions, and with them the group's partitions.
func (s *partition) Identity(context.Context) (string, error) { return s.log, nil }

// Committed claims the position: from now on the commits of earlier owners are rejected.
func (s *partition) Committed(ctx context.Context) (int64, error) {
	if err := queryRow(ctx, s.cfg.Pool, claim, s.cfg.Name, s.number).Scan(&s.claim, &s.floor); err != nil {
		return 0, s.failed(err)
	}
	return s.floor, nil
}

// Commit is fenced by the claim.
func (s *partition) Commit(ctx context.Context, floor int64) error {
	floor = max(floor, s.floor)
	for asked := false; !asked || s.floor < floor; asked = true { // once in any case: it tells whose the partition is
		err := queryRow(ctx, s.cfg.Pool, commit, s.cfg.Name, s.number, s.floor, floor, deleting, s.claim).Scan(&s.floor)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return dispatch.Lost(s.name, errors.New("leasepg: a later owner has claimed the position"))
		case err != nil:
			return s.failed(err)
		}
	}
	return nil
}

// End is the id after the last record that shows, safe or not.
func (s *partition) End(ctx context.Context) (end int64, err error) {
	var drawn int64
	if err := s.cfg.Pool.QueryRow(ctx, askEnd, s.cfg.Name, s.number).Scan(&end, &drawn); err != nil {
		return 0, s.failed(err)
	}
	if drawn < end-1 {
		return 0, rewound(s.name, "the greatest id drawn", drawn, end-1)
	}
	return end, nil
}

// Fetch reads up to the horizon. Where nothing is left it looks whether the horizon has moved, soon and then ever less often
// while a transaction keeps it where it is, else after Poll or when it is woken.
func (s *partition) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	pause := soon
	view, after := s.horizon.now()
	for {
		strange := false
		if view.safe >= from && !(from == s.from && view.safe <= s.none) {
			records, err := s.read(ctx, view, from, limit)
			if strange = errors.Is(err, errRun); len(records) > 0 || err != nil && !strange {
				return records, err
			}
		}
		waiting := s.waiting()
		fresh, err := s.horizon.look(ctx, after)
		switch {
		case err != nil:
			return nil, s.failed(err)
		case from > fresh.drawn+1:
			return nil, rewound(s.name, "the greatest id drawn", fresh.drawn, from-1)
		case strange && fresh.run == view.run:
			return nil, s.failed(errRun)
		}
		moved := fresh.safe > view.safe || fresh.run != view.run
		if view, after = fresh, fresh.number; moved {
			pause = soon
			continue
		}
		wait := s.cfg.Poll
		if !view.held.IsZero() {
			wait = min(pause, wait)
			pause *= 2
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-waiting:
			_, after = s.horizon.now() // what was begun before may not show it
			pause = soon
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
		timer.Stop()
	}
}

// errRun: the rows came from a server that is not the one of the horizon, or not any more.
var errRun = errors.New("leasepg: the server was started anew, or records are read from another one")

// read returns what lies from the id from on and below the horizon.
func (s *partition) read(ctx context.Context, view seen, from int64, limit int) (records []dispatch.Record, err error) {
	var run string
	bytes := 0
	batch := new(pgx.Batch)
	batch.Queue(askRun).QueryRow(func(row pgx.Row) error { return row.Scan(&run) })
	batch.Queue(fetch, s.cfg.Name, s.number, from, view.safe, limit, maxPage).Query(func(rows pgx.Rows) (err error) {
		records, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r dispatch.Record, err error) {
			var packed int
			r, packed, err = record(row)
			bytes += len(r.Payload) + packed
			return r, err
		})
		return err
	})
	switch err := s.cfg.Pool.SendBatch(ctx, batch).Close(); {
	case err != nil:
		return nil, s.failed(err)
	case run != view.run:
		return nil, s.failed(errRun)
	}
	if len(records) < limit && bytes < maxPage { // else the page was cut
		s.from, s.none = from, view.safe
		if len(records) > 0 {
			s.from = records[len(records)-1].Offset + 1
		}
	}
	return records, nil
}

// record reads a row, and tells how long its headers are there.
func record(row pgx.CollectableRow) (r dispatch.Record, packed int, err error) {
	var domain, headers []byte
	if err := row.Scan(&r.Offset, &domain, &r.Payload, &headers, &r.Time); err != nil {
		return r, 0, err
	}
	r.Domain = string(domain)
	r.Headers, err = unpacked(headers)
	return r, len(headers), err
}

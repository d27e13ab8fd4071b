// SPDX-License-Identifier: Apache-2.0

package leasepg

// This file is the outbox: records that a transaction enqueues for a dispatcher, atomically with its other writes.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// OutboxConfig configures an Outbox.
type OutboxConfig struct {
	// Pool is a pool of connections to a migrated database. Required. The caller owns it and closes it after the last
	// call. Records are read through it, one connection for one statement; Enqueue uses only the transaction's own.
	Pool *pgxpool.Pool
	// Name is the outbox's name, unique in the database: 1 to 255 bytes of UTF-8 without a zero byte.
	Name string
	// Partitions is the number of partitions into which a hash divides the keys: 1 to 1024. The first OpenOutbox records
	// it and it cannot be changed, because keys would move to other partitions. 0: the recorded number; an outbox that
	// does not exist is then rejected.
	Partitions int
	// Poll is how often a Source looks for new records without a notification (see Listen). 0: 200 ms. 1 ms to a minute.
	Poll time.Duration
	// Notify makes Enqueue wake the processes that Listen when its transaction is committed. PostgreSQL commits
	// transactions that notify one at a time, which bounds their rate, and cannot prepare one (PREPARE TRANSACTION).
	// Without it a record waits for the next Poll.
	Notify bool
}

// Outbox is a set of records in PostgreSQL, divided into partitions: enqueued in any transactions of any processes, and
// read by one owner per partition. It loses no record and shows none before its transaction is committed. It must come
// from OpenOutbox. It is safe for concurrent use; there is nothing to close.
type Outbox struct {
	cfg      OutboxConfig
	identity string // of the database
	horizon  horizon

	mu    sync.Mutex    // guards below; nothing foreign runs under it
	woken chan struct{} // closed when there may be more; nil while nobody waits
}

const (
	maxPartitions = 1024
	maxPayload    = 1 << 20
	maxHeaders    = 1 << 16 // bytes of all names and values of a record, and two for each of these

	// One INSERT takes so many records, or so many bytes and one record more.
	maxRows  = 1000
	maxBytes = 8 << 20
)

const (
	openOutbox = `INSERT INTO stopbank.outboxes (outbox, partitions, first)
		SELECT $1, $2, last_value + 1 FROM stopbank.outbox_ids ON CONFLICT DO NOTHING`
	askPartitions = `SELECT partitions FROM stopbank.outboxes WHERE outbox = $1`

	// ORDER BY comes before the ids are drawn. A database that is not the outbox's own inserts nothing.
	enqueue = `WITH new AS (
			INSERT INTO stopbank.outbox_records (outbox, partition, domain, payload, headers, enqueued)
			SELECT $1, r.partition, r.domain, r.payload, r.headers, coalesce(r.enqueued, clock_timestamp())
			FROM unnest($2::int[], $3::bytea[], $4::bytea[], $5::bytea[], $6::timestamptz[])
				WITH ORDINALITY AS r (partition, domain, payload, headers, enqueued, n)
			WHERE ($7, $8) = (SELECT ` + identity + `, version FROM stopbank.lease_schema) ORDER BY r.n
			RETURNING 1
		) SELECT count(*), CASE WHEN $9 THEN pg_notify('` + channel + `', $1) END FROM new`
	channel = "stopbank_outbox"
)

// OpenOutbox returns the outbox of that name, and creates it if Partitions is not 0. It claims no partition and starts
// no goroutine. It blocks for four queries at most. Errors: *lease.InvalidError naming the field, also for a number of
// Partitions other than the recorded one, the schema or the server's setting; or the database's.
func OpenOutbox(ctx context.Context, cfg OutboxConfig) (*Outbox, error) {
	invalid := func(field string, value any, allowed string) error {
		return &lease.InvalidError{Field: "leasepg.OutboxConfig." + field, Value: value, Allowed: allowed}
	}
	if cfg.Poll == 0 {
		cfg.Poll = 200 * time.Millisecond
	}
	switch {
	case ctx == nil:
		return nil, noContext()
	case cfg.Pool == nil:
		return nil, invalid("Pool", "nil", "a pool")
	case cfg.Name == "" || len(cfg.Name) > maxLedger || !utf8.ValidString(cfg.Name) || strings.ContainsRune(cfg.Name, 0):
		return nil, invalid("Name", strconv.Quote(cfg.Name), "1 to 255 bytes of UTF-8 without a zero byte")
	case cfg.Partitions < 0 || cfg.Partitions > maxPartitions:
		return nil, invalid("Partitions", cfg.Partitions, fmt.Sprintf("1 to %d, or 0 (as many as the outbox has)", maxPartitions))
	case cfg.Poll < time.Millisecond || cfg.Poll > time.Minute:
		return nil, invalid("Poll", cfg.Poll, "1ms to 1m, or 0 (the default, 200ms)")
	}
	id, err := check(ctx, cfg.Pool)
	if err != nil {
		return nil, err
	}
	if cfg.Partitions > 0 {
		if _, err := cfg.Pool.Exec(ctx, openOutbox, cfg.Name, cfg.Partitions); err != nil {
			return nil, fmt.Errorf("leasepg: outbox %s: %w", cfg.Name, err)
		}
	}
	var partitions int
	switch err := cfg.Pool.QueryRow(ctx, askPartitions, cfg.Name).Scan(&partitions); {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, invalid("Name", strconv.Quote(cfg.Name), "the name of an existing outbox; set Partitions to create one")
	case err != nil:
		return nil, fmt.Errorf("leasepg: outbox %s: %w", cfg.Name, err)
	case cfg.Partitions != 0 && partitions != cfg.Partitions:
		return nil, invalid("Partitions", cfg.Partitions, strconv.Itoa(partitions)+", with which the outbox was created")
	}
	cfg.Partitions = partitions
	return &Outbox{cfg: cfg, identity: id, horizon: horizon{pool: cfg.Pool, turn: make(chan struct{}, 1)}}, nil
}

// made rejects an Outbox that OpenOutbox did not make.
func (o *Outbox) made(ctx context.Context) error {
	switch {
	case o == nil || o.cfg.Pool == nil:
		return &lease.InvalidError{Field: "leasepg.Outbox", Value: "nil or zero", Allowed: "an outbox made by OpenOutbox"}
	case ctx == nil:
		return noContext()
	}
	return nil
}

// Partitions returns the names of the partitions: the outbox's name, a slash, and a number from 0.
// GroupConfig.Names takes them.
func (o *Outbox) Partitions() []string {
	if o == nil {
		return nil
	}
	names := make([]string, 0, o.cfg.Partitions)
	for i := range o.cfg.Partitions {
		names = append(names, o.cfg.Name+"/"+strconv.Itoa(i))
	}
	return names
}

// Enqueue adds records to the outbox in tx: they become readable when tx is committed, in the order given, and never if
// it is rolled back. Domain, Payload, Headers and Time of a record are stored; Offset is ignored, because the outbox
// numbers records itself. A zero Time becomes the server's. Records of one domain from two transactions have the order
// of the two Enqueues. Where a row lock orders the transactions, call Enqueue while it is held.
//
// It blocks for one round trip per 1,000 records or 8 MiB. Errors: *lease.InvalidError naming the limit (a Domain of 1
// to 65,535 bytes, a Payload of 1 MiB, Headers of 64 KiB together) before anything is sent, or for a transaction of another
// database; or the database's. After an error roll tx back: it may contain some of the records.
func (o *Outbox) Enqueue(ctx context.Context, tx pgx.Tx, records ...dispatch.Record) error {
	if err := o.made(ctx); err != nil {
		return err
	}
	if tx == nil {
		return &lease.InvalidError{Field: "tx", Value: "nil", Allowed: "a transaction"}
	}
	for i := range records {
		if err := fits(i, &records[i]); err != nil {
			return err
		}
	}
	for len(records) > 0 {
		n, bytes := 0, 0
		for n < min(len(records), maxRows) && bytes < maxBytes {
			bytes += len(records[n].Domain) + len(records[n].Payload)
			n++
		}
		if err := o.insert(ctx, tx, records[:n]); err != nil {
			return err
		}
		records = records[n:]
	}
	return nil
}

func fits(i int, r *dispatch.Record) error {
	name := func(field string) string { return fmt.Sprintf("records[%d].%s", i, field) }
	headers := 0
	for _, h := range r.Headers {
		headers += len(h.Key) + len(h.Value) + 2
	}
	switch {
	case r.Domain == "" || len(r.Domain) > maxName:
		return &lease.InvalidError{Field: name("Domain"), Value: fmt.Sprintf("%d bytes", len(r.Domain)), Allowed: "1 to 65535 bytes"}
	case len(r.Payload) > maxPayload:
		return &lease.InvalidError{Field: name("Payload"), Value: fmt.Sprintf("%d bytes", len(r.Payload)),
			Allowed: fmt.Sprintf("0 to %d bytes", maxPayload)}
	case headers > maxHeaders:
		return &lease.InvalidError{Field: name("Headers"), Value: fmt.Sprintf("%d bytes", headers),
			Allowed: fmt.Sprintf("0 to %d bytes", maxHeaders)}
	}
	return nil
}

func (o *Outbox) insert(ctx context.Context, tx pgx.Tx, records []dispatch.Record) error {
	n := len(records)
	partitions, domains, payloads := make([]int32, n), make([][]byte, n), make([][]byte, n)
	headers, times := make([][]byte, n), make([]*time.Time, n)
	for i, r := range records {
		partitions[i], domains[i], headers[i] = o.partition(r.Domain), []byte(r.Domain), packed(r.Headers)
		if payloads[i] = r.Payload; r.Payload == nil {
			payloads[i] = []byte{} // nil would be NULL
		}
		if !r.Time.IsZero() {
			times[i] = &records[i].Time
		}
	}
	version, err := newest()
	if err != nil {
		return err
	}
	var inserted int
	var notified any
	err = tx.QueryRow(ctx, enqueue, o.cfg.Name, partitions, domains, payloads, headers, times, o.identity, version, o.cfg.Notify).
		Scan(&inserted, &notified)
	switch {
	case err != nil:
		return transaction("enqueue", err)
	case inserted != n:
		return elsewhere(ctx, tx, o.identity)
	}
	return nil
}

// partition is where the records of a domain go. It never changes: a record's place was worked out by the program that enqueued
// it.
func (o *Outbox) partition(domain string) int32 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(domain))
	return int32(h.Sum64() % uint64(o.cfg.Partitions))
}

// packed writes headers down, each name and each value behind its length; nil if there are none.
func packed(headers []dispatch.Header) (b []byte) {
	for _, h := range headers {
		b = binary.AppendUvarint(b, uint64(len(h.Key)))
		b = append(b, h.Key...)
		b = binary.AppendUvarint(b, uint64(len(h.Value)))
		b = append(b, h.Value...)
	}
	return b
}

var errHeaders = errors.New("headers that Enqueue did not write")

// unpacked reads headers.
func unpacked(b []byte) (headers []dispatch.Header, err error) {
	field := func() (f []byte) {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			err, b = errHeaders, nil
			return nil
		}
		f, b = b[size:size+int(n)], b[size+int(n):]
		return slices.Clone(f)
	}
	for len(b) > 0 && err == nil {
		headers = append(headers, dispatch.Header{Key: string(field()), Value: field()})
	}
	return headers, err
}

// Held returns how long an open or prepared transaction that has enqueued has been holding back records, 0 if none does.
// The value is from the last read of a Source in this process, plus the time since; without a Source it only grows.
// docs/outbox.md says how to find the transaction.
func (o *Outbox) Held() time.Duration {
	if o == nil {
		return 0
	}
	if s, _ := o.horizon.now(); !s.held.IsZero() {
		return time.Since(s.held)
	}
	return 0
}

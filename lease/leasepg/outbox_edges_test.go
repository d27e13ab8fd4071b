// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file is about the edges of the outbox: what is refused, what is kept of a record, who owns a position, what a restore
// leaves, and what wakes a reader.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasepg"
)

func TestOutboxConfig(t *testing.T) {
	pool := migrated(t, 2)
	name := t.Name()
	good := leasepg.OutboxConfig{Pool: pool, Name: name, Partitions: 2}
	for field, spoil := range map[string]func(*leasepg.OutboxConfig){
		"Pool": func(c *leasepg.OutboxConfig) { c.Pool = nil }, "Name": func(c *leasepg.OutboxConfig) { c.Name = "" },
		"Partitions": func(c *leasepg.OutboxConfig) { c.Partitions = 1025 },
		"Poll":       func(c *leasepg.OutboxConfig) { c.Poll = time.Microsecond },
	} {
		cfg := good
		spoil(&cfg)
		if _, err := leasepg.OpenOutbox(t.Context(), cfg); !refusesField(err, "leasepg.OutboxConfig."+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	must(leasepg.OpenOutbox(t.Context(), good))(t)
	good.Partitions = 0
	if o, err := leasepg.OpenOutbox(t.Context(), good); err != nil || len(o.Partitions()) != 2 {
		t.Errorf("as many as are written down: %v", err)
	}
	nowhere := good
	nowhere.Name += "s"
	for range 2 { // nor does the first try make it
		if _, err := leasepg.OpenOutbox(t.Context(), nowhere); !refusesField(err, "leasepg.OutboxConfig.Name") {
			t.Errorf("an outbox that is not there: %v", err)
		}
	}
	good.Partitions = 3 // a key would be in two partitions
	if _, err := leasepg.OpenOutbox(t.Context(), good); !refusesField(err, "leasepg.OutboxConfig.Partitions") ||
		!strings.Contains(err.Error(), "allowed: 2") {
		t.Errorf("another number of partitions: %v", err)
	}
	if _, err := leasepg.OpenOutbox(nil, good); !refusesField(err, "ctx") { //nolint:staticcheck // refused, not a panic
		t.Errorf("no context: %v", err)
	}
	empty := fresh(t, 1)
	_, err := leasepg.OpenOutbox(t.Context(), leasepg.OutboxConfig{Pool: empty, Name: name, Partitions: 1})
	refusesSchema(t, err, 0, newest)

	for name, o := range map[string]*leasepg.Outbox{"zero": {}, "nil": nil} {
		_, opens := o.Open(t.Context(), "x/0", nil)
		for _, err := range []error{o.Enqueue(t.Context(), nil), o.Listen(t.Context(), nil), opens} {
			if !refusesField(err, "leasepg.Outbox") {
				t.Errorf("of a %s Outbox: %v", name, err)
			}
		}
		if len(o.Partitions()) != 0 || o.Held() != 0 {
			t.Errorf("of a %s Outbox: %v, held for %v", name, o.Partitions(), o.Held())
		}
	}
	o := outbox(t, pool, 1)
	if _, err := o.Open(t.Context(), "nowhere/0", nil); !refusesField(err, "partition") {
		t.Errorf("a partition that there is not: %v", err)
	}
	if _, err := o.Open(t.Context(), o.Partitions()[0], nil); !refusesField(err, "ledger") {
		t.Errorf("no ledger: %v", err)
	}
}

// What is above a limit is refused before anything is sent, and a transaction that cannot take records says so.
func TestEnqueueRefuses(t *testing.T) {
	pool := migrated(t, 6)
	o := outbox(t, pool, 1)
	tx := begin(t, pool, pgx.TxOptions{})
	for field, r := range map[string]dispatch.Record{
		"Domain": {}, "Payload": {Domain: "a", Payload: make([]byte, 1<<20+1)},
		"Headers": {Domain: "a", Headers: []dispatch.Header{{Key: "k", Value: make([]byte, 1<<16)}}},
	} {
		if err := o.Enqueue(t.Context(), tx, record("a", 1), r); !refusesField(err, "records[1]."+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := o.Enqueue(t.Context(), tx, dispatch.Record{Domain: strings.Repeat("d", 1<<16)}); !refusesField(err,
		"records[0].Domain") {
		t.Errorf("a long domain: %v", err)
	}
	if err := o.Enqueue(t.Context(), nil, record("a", 1)); !refusesField(err, "tx") {
		t.Errorf("no transaction: %v", err)
	}
	noError(t, tx.Commit(t.Context()))
	refusesUnusable(t, pool, func(tx pgx.Tx) error { return o.Enqueue(t.Context(), tx, record("a", 1)) })
	if n := ask(t, pool, "SELECT count(*) FROM stopbank.outbox_records WHERE outbox = $1",
		strings.TrimSuffix(o.Partitions()[0], "/0")); n != "0" {
		t.Errorf("%s records all the same", n)
	}
}

// Whatever is put in comes out, in every mode of the driver, and in one call more than one INSERT takes.
func TestKeepsRecords(t *testing.T) {
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			pool := migrated(t, 1, "default_query_exec_mode="+mode)
			o := outbox(t, pool, 1)
			written := []dispatch.Record{
				{Domain: "a\x00\xff", Payload: []byte{0, 255, '\'', '\\'}, Time: time.UnixMicro(1234567890123456)},
				{Domain: "a", Headers: []dispatch.Header{{Key: "k", Value: []byte{0, 1}}, {Key: "", Value: []byte{}},
					{Key: "k", Value: []byte("2")}}},
			}
			for i := range 2500 {
				written = append(written, record(fmt.Sprint("many ", i%7), i))
			}
			before := time.Now().Add(-time.Minute)
			put(t, pool, o, written...)
			s := opened(t, o, 0, durable.NewMemStore())
			from, _ := take(t, s)
			var got []dispatch.Record
			for len(got) < len(written) {
				got = append(got, next(t, s, from, 999)...)
				from = got[len(got)-1].Offset + 1
			}
			for i := range got {
				if written[i].Time.IsZero() && got[i].Time.After(before) {
					got[i].Time = time.Time{}
				}
				got[i].Offset, got[i].Time = 0, got[i].Time.UTC()
				written[i].Time = written[i].Time.UTC()
				if written[i].Payload == nil {
					written[i].Payload = []byte{}
				}
			}
			if diff := cmp.Diff(written, got); diff != "" {
				t.Fatalf("L13: (-want +got)\n%s", diff)
			}
		})
	}
}

func TestHeadersAsBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		header := rapid.Custom(func(t *rapid.T) dispatch.Header {
			return dispatch.Header{Key: rapid.String().Draw(t, "key"), Value: rapid.SliceOf(rapid.Byte()).Draw(t, "value")}
		})
		want := rapid.SliceOf(header).Draw(t, "headers")
		got, err := leasepg.Unpacked(leasepg.Packed(want))
		if len(want) == 0 {
			want = nil
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("%v (-want +got)\n%s", err, diff)
		}
		_, _ = leasepg.Unpacked(rapid.SliceOf(rapid.Byte()).Draw(t, "anything")) // an error, or headers
	})
	for _, bad := range [][]byte{{1}, {200}, {0}, {255, 255, 255, 255, 255, 255, 255, 255, 255, 1}} {
		if _, err := leasepg.Unpacked(bad); err == nil {
			t.Errorf("%v was read", bad)
		}
	}
}

// The position belongs to whoever claimed it last; what is below the floor is deleted, in several statements where it is much.
func TestOutboxPosition(t *testing.T) {
	pool := migrated(t, 2)
	o := outbox(t, pool, 1)
	s := opened(t, o, 0, durable.NewMemStore())
	floor, _ := take(t, s)
	var many []dispatch.Record
	for i := range 12_000 {
		many = append(many, record("a", i))
	}
	put(t, pool, o, many...)
	end := must(s.(dispatch.Ended).End(t.Context()))(t)
	noError(t, s.Commit(t.Context(), end-1))
	left := func() string {
		return ask(t, pool, "SELECT count(*) FROM stopbank.outbox_records WHERE outbox = $1",
			strings.TrimSuffix(o.Partitions()[0], "/0"))
	}
	if n := left(); n != "1" {
		t.Errorf("%s records are left of 12,000, want the one at the floor", n)
	}
	again := opened(t, o, 0, durable.NewMemStore())
	if at, _ := take(t, again); at != end-1 || at <= floor {
		t.Errorf("begins at %d, want %d", at, end-1)
	}
	if err := s.Commit(t.Context(), end); !errors.Is(err, dispatch.ErrLost) || !strings.Contains(err.Error(), o.Partitions()[0]) {
		t.Errorf("a commit of the former owner: %v", err)
	}
	// the floor that it has committed itself: so a dispatcher asks whose the partition is
	if err := s.Commit(t.Context(), end-1); !errors.Is(err, dispatch.ErrLost) {
		t.Errorf("a commit of the former owner's last floor: %v", err)
	}
	for _, floor := range []int64{floor, end - 1} { // nothing new, and never back
		if err := again.Commit(t.Context(), floor); err != nil {
			t.Error(err)
		}
	}
	if n := left(); n != "1" {
		t.Errorf("%s records are left after it", n)
	}
	if at, _ := take(t, opened(t, o, 0, durable.NewMemStore())); at != end-1 {
		t.Errorf("the floor is %d, want %d", at, end-1)
	}
	take(t, again)
	if err := again.Commit(t.Context(), end); err != nil || left() != "0" {
		t.Errorf("%v, %s left", err, left())
	}
	if at, err := again.(dispatch.Ended).End(t.Context()); err != nil || at != end {
		t.Errorf("the end of nothing is %d, %v, want %d", at, err, end)
	}
	nothing(t, o, again, end)
}

// A page ends where it has a mebibyte, however many records it may have: large ones come a few at a time, and all of them.
func TestOutboxPagesAreBounded(t *testing.T) {
	pool := migrated(t, 2)
	o := outbox(t, pool, 1)
	s := opened(t, o, 0, durable.NewMemStore())
	from, _ := take(t, s)
	var want []string
	var many []dispatch.Record
	for i, size := range []int{1 << 20, 1 << 20, 10, 500_000, 500_000, 500_000, 1<<20 - 9, 9, 1 << 20, 1} {
		r := dispatch.Record{Domain: "a", Payload: []byte(strings.Repeat(fmt.Sprint(i), size))}
		many, want = append(many, r), append(want, fmt.Sprint(i, " ", size))
	}
	put(t, pool, o, many...)
	var got []string
	for len(got) < len(want) {
		page, bytes := next(t, s, from, 256), 0
		for _, r := range page {
			got = append(got, fmt.Sprint(string(r.Payload[:1]), " ", len(r.Payload)))
			bytes += len(r.Payload)
		}
		if most := 1<<20 + len(page[len(page)-1].Payload); bytes > most {
			t.Errorf("D3: a page of %d bytes in %d records", bytes, len(page))
		}
		from = page[len(page)-1].Offset + 1
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("D3: (-want +got)\n%s", diff)
	}
	nothing(t, o, s, from)
}

// An outbox that was put back is refused: nothing of it is taken for done in silence.
func TestOutboxPutBack(t *testing.T) {
	pool := fresh(t, 4)
	noError(t, leasepg.Migrate(t.Context(), pool))
	o := reopened(t, pool, "o", 1)
	ledger := ledgerIn(t, durable.NewMemStore())
	source := func() (dispatch.Source, error) {
		p, err := o.Open(t.Context(), "o/0", ledger)
		return p.Source, err
	}
	rewound := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), what+" is ") || !strings.Contains(err.Error(), "was put back") || !errors.Is(err, dispatch.ErrRewound) {
			t.Errorf("%v, want that %s was put back", err, what)
		}
	}
	s, err := source()
	if err != nil {
		t.Fatal(err)
	}
	first, _ := take(t, s)
	put(t, pool, o, record("a", 1), record("a", 2))
	from := next(t, s, first, 2)[1].Offset + 1
	noError(t, s.Commit(t.Context(), from))
	noError(t, ledger.Compact(t.Context(), from))

	// Emptied by hand, as in development: ids go on, and nothing is lost.
	execute(t, pool, "TRUNCATE stopbank.outbox_records, stopbank.outbox_positions, stopbank.outboxes RESTART IDENTITY")
	o = reopened(t, pool, "o", 1)
	put(t, pool, o, record("a", 3))
	if s, err = source(); err != nil {
		t.Fatal(err)
	}
	from, _ = take(t, s)
	if got := payloads(next(t, s, from, 9)); !slices.Equal(got, []string{"3"}) {
		t.Errorf("read %q of the outbox made anew", got)
	}

	// An older position, as of a backup.
	execute(t, pool, "UPDATE stopbank.outboxes SET first = $1", first)
	execute(t, pool, "UPDATE stopbank.outbox_positions SET floor = $1", first)
	_, err = source()
	rewound("the position", err)
	// Records that were deleted are back.
	execute(t, pool, "UPDATE stopbank.outbox_positions SET floor = $1", from+10)
	_, err = source()
	rewound("the greatest id drawn", err)
	execute(t, pool, "SELECT nextval('stopbank.outbox_ids') FROM generate_series(1, 20)")
	_, err = source()
	rewound("the first record", err)

	// The ids go back below the eyes of an owner.
	execute(t, pool, "UPDATE stopbank.outbox_positions SET floor = $1", from)
	if s, err = source(); err != nil {
		t.Fatal(err)
	}
	from, _ = take(t, s)
	from = next(t, s, from, 9)[0].Offset + 1
	execute(t, pool, "SELECT setval('stopbank.outbox_ids', $1)", first)
	_, err = s.Fetch(t.Context(), from, 9)
	rewound("the greatest id drawn", err)
	if !errors.Is(err, dispatch.ErrRewound) {
		t.Errorf("D13: %v does not say that the outbox is rewound", err)
	}

	// A database made anew gives out no id that a ledger elsewhere may remember.
	execute(t, pool, "DROP SCHEMA stopbank CASCADE")
	noError(t, leasepg.Migrate(t.Context(), pool))
	o = reopened(t, pool, "o", 1)
	put(t, pool, o, record("a", 4))
	if s, err = source(); err != nil {
		t.Fatal(err)
	}
	from, _ = take(t, s)
	got := next(t, s, from, 9)
	if status, err := ledger.Offer(t.Context(), "a", got[0].Offset); err != nil || status != lease.Enqueued {
		t.Errorf("the ledger says %v, %v of a new record", status, err)
	}
}

// A commit wakes a reader that would look again in a minute, and so does the connection that is made again after one broke.
func TestListen(t *testing.T) {
	pool := migrated(t, 3)
	name := t.Name()
	o := must(leasepg.OpenOutbox(t.Context(), leasepg.OutboxConfig{Pool: pool, Name: name, Partitions: 1, Poll: time.Minute,
		Notify: true}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	listened := make(chan error, 1)
	conn := pool.Config().ConnConfig.Copy()
	conn.RuntimeParams["application_name"] = "stopbank_listener"
	const listener = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'stopbank_listener' AND query LIKE 'SELECT pg_backend%' AND state = 'idle'"
	go func() { listened <- o.Listen(ctx, conn) }()
	s := opened(t, o, 0, durable.NewMemStore())
	from, _ := take(t, s)
	for i := range 5 {
		for ask(t, pool, listener) == "0" {
			time.Sleep(time.Millisecond) // nothing tells
		}
		fetched := make(chan []dispatch.Record, 1)
		go func() {
			records, _ := s.Fetch(t.Context(), from, 9)
			fetched <- records
		}()
		for looks := o.Looks(); i > 0 && o.Looks() == looks; { // it has begun to wait
			time.Sleep(time.Millisecond)
		}
		put(t, pool, o, record("a", i))
		records := <-fetched // or the test hangs for a minute, and the next one too
		if len(records) != 1 {
			t.Fatalf("%d records", len(records))
		}
		from = records[0].Offset + 1
	}
	cancel()
	if err := <-listened; err != nil {
		t.Error(err)
	}
	if err := o.Listen(t.Context(), nil); !refusesField(err, "conn") {
		t.Errorf("no connection: %v", err)
	}
	wrong := pool.Config().ConnConfig.Copy()
	wrong.Password = "wrong"
	wrong.Database = "there_is_none"
	if err := o.Listen(t.Context(), wrong); err == nil {
		t.Error("listens to a database that there is not")
	}
}

// A prepared transaction has another name than the one under which it wrote, and keeps its records back all the same.
func TestPrepared(t *testing.T) {
	pool := migrated(t, 3)
	if ask(t, pool, "SELECT current_setting('max_prepared_transactions')") == "0" {
		t.Skip("the server prepares no transactions")
	}
	o := outbox(t, pool, 1)
	quiet := must(leasepg.OpenOutbox(t.Context(), leasepg.OutboxConfig{Pool: pool, Name: strings.TrimSuffix(o.Partitions()[0], "/0"),
		Partitions: 1}))(t)
	s := opened(t, o, 0, durable.NewMemStore())
	from, _ := take(t, s)
	conn := must(pool.Acquire(t.Context()))(t)
	defer conn.Release()
	tx := must(conn.Begin(t.Context()))(t)
	noError(t, quiet.Enqueue(t.Context(), tx, record("a", 1)))
	put(t, pool, o, record("b", 2))
	nothing(t, o, s, from) // marked, by the name of its virtual transaction
	must(tx.Exec(t.Context(), "PREPARE TRANSACTION 'stopbank late'"))(t)
	nothing(t, o, s, from)
	must(conn.Exec(t.Context(), "COMMIT PREPARED 'stopbank late'"))(t)
	if got := payloads(next(t, s, from, 9)); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("L13: read %q", got)
	}
}

// What was learned of a server is forgotten when it has been started again.
func TestRestart(t *testing.T) {
	if !need(t).Private() {
		t.Skip("the server is not ours to restart")
	}
	pool := migrated(t, 3)
	o := outbox(t, pool, 1)
	s := opened(t, o, 0, durable.NewMemStore())
	from, _ := take(t, s)
	put(t, pool, o, record("a", 1))
	from = next(t, s, from, 9)[0].Offset + 1
	tx := must(pool.Begin(t.Context()))(t)
	if err := o.Enqueue(t.Context(), tx, record("a", 2)); err != nil { // dies with the server
		t.Fatal(err)
	}
	put(t, pool, o, record("b", 3))
	if nothing(t, o, s, from); o.Held() == 0 {
		t.Error("L13: nothing is held up, by Held")
	}
	noError(t, server.Restart(t.Context()))
	_ = tx.Rollback(t.Context()) // it is gone
	for pool.Ping(t.Context()) != nil {
	}
	if got := payloads(next(t, s, from, 9)); !slices.Equal(got, []string{"3"}) {
		t.Errorf("L13: read %q", got)
	}
}

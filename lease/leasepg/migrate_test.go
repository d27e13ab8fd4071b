// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file is about the schema: made once, never half, and refused when it is not the one that is known.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasepg"
)

// fresh returns a pool to a database of its own, without a schema.
func fresh(t testing.TB, n int32) *pgxpool.Pool {
	t.Helper()
	at := must(need(t).Database(t.Context()))(t)
	return connect(t, at, n)
}

func execute(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func ask(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (answer string) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

// refusesSchema checks for an error about a schema of version found (0: none) where this program has version want.
func refusesSchema(t *testing.T, err error, found, want int) {
	t.Helper()
	value, allowed := fmt.Sprint("version ", found), fmt.Sprintf("version %d: run Migrate", want)
	if found == 0 {
		value = "absent"
	} else if found > want {
		allowed = fmt.Sprintf("version %d or older: upgrade the program", want)
	}
	var got *lease.InvalidError
	if !errors.As(err, &got) || got.Field != "leasepg.schema" || got.Value != value || got.Allowed != allowed {
		t.Errorf("%v, want %s, allowed %s", err, value, allowed)
	}
}

// A schema that somebody else has made may have views and functions of his: they are not to run with the rights of who migrates.
func TestMigrateRefusesAForeignSchema(t *testing.T) {
	pool := fresh(t, 1) // a superuser's
	role := fmt.Sprint("intruder_", time.Now().UnixNano())
	execute(t, pool, "CREATE ROLE "+role)
	t.Cleanup(func() {
		_, _ = pool.Exec(context.Background(), "DROP SCHEMA IF EXISTS stopbank CASCADE; DROP ROLE "+role)
	})
	execute(t, pool, "CREATE SCHEMA stopbank AUTHORIZATION "+role)
	execute(t, pool, "SET ROLE "+role)
	execute(t, pool, "CREATE VIEW stopbank.lease_schema AS SELECT 0 / (SELECT 0) AS version") // whoever reads it notices
	execute(t, pool, "RESET ROLE")
	var got *lease.InvalidError
	if err := leasepg.Migrate(t.Context(), pool); !errors.As(err, &got) || got.Field != "leasepg.schema: its owner" || got.Value != role {
		t.Errorf("%v, want the owner %s refused", err, role)
	}
	execute(t, pool, "DROP SCHEMA stopbank CASCADE")
	execute(t, pool, "CREATE SCHEMA stopbank")
	if err := leasepg.Migrate(t.Context(), pool); err != nil {
		t.Errorf("its own schema: %v", err)
	}
}

// newest is the schema's version.
const newest = 5

func TestSchemaVersions(t *testing.T) {
	pool := fresh(t, 4)
	open := func() error {
		_, err := leasepg.OpenStore(t.Context(), leasepg.StoreConfig{Pool: pool})
		return err
	}
	refusesSchema(t, open(), 0, newest)
	var group sync.WaitGroup
	for range 4 { // programs that start together
		group.Go(func() {
			if err := leasepg.Migrate(t.Context(), pool); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	noError(t, open())
	s := named(t, pool, "")
	swap(t, s, "A", 0, "kept", durable.Held)
	noError(t, leasepg.Migrate(t.Context(), pool))
	if state, _ := load(t, s, "A"); string(state) != "kept" {
		t.Errorf("state %q after another Migrate", state)
	}

	execute(t, pool, "UPDATE stopbank.lease_schema SET version = version + 1")
	refusesSchema(t, open(), newest+1, newest)
	refusesSchema(t, leasepg.Migrate(t.Context(), pool), newest+1, newest)
	execute(t, pool, "UPDATE stopbank.lease_schema SET version = 0")
	refusesSchema(t, open(), 0, newest)
	execute(t, pool, "DELETE FROM stopbank.lease_schema")
	if err := open(); err == nil {
		t.Error("opened, with no version at all")
	}
}

// A later version is made out of an earlier one, whole or not at all.
func TestMigrateInSteps(t *testing.T) {
	pool := fresh(t, 2)
	noError(t, leasepg.Migrate(t.Context(), pool))
	const tables = "SELECT string_agg(tablename, ' ' ORDER BY tablename) FROM pg_tables WHERE schemaname = 'stopbank'"
	before := ask(t, pool, tables)
	names := must(fs.Glob(leasepg.Migrations(), "migrations/*.sql"))(t)
	files := fstest.MapFS{
		"migrations/9998_more.sql":  {Data: []byte("CREATE TABLE stopbank.x (x int); INSERT INTO stopbank.x VALUES (2);")},
		"migrations/9999_wrong.sql": {Data: []byte("CREATE TABLE stopbank.y (x int); SELECT 1/0;")},
	}
	for _, name := range names { // would fail if they were carried out again
		data := must(fs.ReadFile(leasepg.Migrations(), name))(t)
		files[name] = &fstest.MapFile{Data: data}
	}
	if err := leasepg.MigrateFrom(t.Context(), pool, files); err == nil || !strings.Contains(err.Error(), "9999_wrong.sql") {
		t.Fatalf("%v, want the file that fails", err)
	}
	if got := ask(t, pool, tables); got != before {
		t.Errorf("half a migration left %s", got)
	}
	files["migrations/9999_wrong.sql"] = &fstest.MapFile{Data: []byte("CREATE TABLE stopbank.y (x int)")}
	noError(t, leasepg.MigrateFrom(t.Context(), pool, files))
	if got := ask(t, pool, tables); got != before+" x y" {
		t.Errorf("the migrations left %s", got)
	}
	_, err := leasepg.OpenStore(t.Context(), leasepg.StoreConfig{Pool: pool})
	refusesSchema(t, err, len(names)+2, len(names))
}

// The role that runs a ledger has no more rights than the package comment asks for.
func TestLeastRights(t *testing.T) {
	if !need(t).Private() {
		t.Skip("roles belong to the whole server, which is not ours")
	}
	owner := migrated(t, 1)
	for _, sql := range []string{
		"CREATE ROLE stopbank_app", "GRANT USAGE ON SCHEMA stopbank TO stopbank_app",
		"GRANT SELECT ON ALL TABLES IN SCHEMA stopbank TO stopbank_app",
		"GRANT INSERT, UPDATE ON stopbank.lease_domains, stopbank.dead_letters TO stopbank_app",
		"GRANT USAGE, SELECT ON stopbank.outbox_ids TO stopbank_app",
		"GRANT INSERT ON stopbank.outboxes, stopbank.outbox_records TO stopbank_app",
		"GRANT INSERT, UPDATE ON stopbank.outbox_positions TO stopbank_app", "GRANT DELETE ON stopbank.outbox_records TO stopbank_app",
	} {
		execute(t, owner, sql)
	}
	pool := migrated(t, 1, "role=stopbank_app") // Migrate finds nothing to do
	if got := ask(t, pool, "SELECT current_user"); got != "stopbank_app" {
		t.Fatal(got)
	}
	s := open(t, pool)
	v := swap(t, s, "A", 0, "one", durable.Held)
	swap(t, s, "A", v, "two", durable.Ready)
	load(t, s, "A")
	list(t, s, durable.Ready)
	o := outbox(t, pool, 1)
	put(t, pool, o, record("A", 1))
	source := opened(t, o, 0, durable.NewMemStore())
	first, _ := take(t, source)
	if got := next(t, source, first, 10); len(got) != 1 {
		t.Errorf("%d records, want 1", len(got))
	} else if err := source.Commit(t.Context(), got[0].Offset+1); err != nil {
		t.Error(err)
	}
	letters := must(leasepg.OpenLetters(t.Context(), leasepg.LettersConfig{Pool: pool,
		Append: func(context.Context, pgx.Tx, string, dispatch.Record) error { return nil }}))(t)
	letter := deadletter.Letter{Partition: t.Name()}
	for _, err := range []error{letters.Put(t.Context(), letter), letters.Park(t.Context(), letter.ID(), ""),
		letters.Replay(t.Context(), letter.ID())} {
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := pool.Exec(t.Context(), "DELETE FROM stopbank.lease_domains"); err == nil {
		t.Error("the role may delete")
	}
}

// What a new owner looks for is found through the small index, in its order.
func TestListUsesItsIndex(t *testing.T) {
	pool := migrated(t, 1, "enable_seqscan=off", "enable_bitmapscan=off")
	rows := must(pool.Query(t.Context(), "EXPLAIN "+leasepg.Listed, "x", []byte("a"), 10, 2))(t)
	var plan strings.Builder
	for rows.Next() {
		var line string
		noError(t, rows.Scan(&line))
		plan.WriteString(line + "\n")
	}
	if rows.Err() != nil || !strings.Contains(plan.String(), "lease_domains_listed") || strings.Contains(plan.String(), "Sort") {
		t.Errorf("%v: %s", rows.Err(), &plan)
	}
}

// No lease and no completion writes to an index (PostgreSQL calls that a HOT update), and the list, which they leave as it is, is
// shortened by Compact.
func TestSwapsLeaveTheIndexesAlone(t *testing.T) {
	pool := fresh(t, 1)
	noError(t, leasepg.Migrate(t.Context(), pool))
	ledger := must(durable.New(durable.Config{Store: named(t, pool, "l")}))(t)
	const keys, rounds = 50, 40
	for offset := range int64(keys * rounds) {
		key := fmt.Sprint("key ", offset%keys)
		a := must(ledger.TryAcquire(t.Context(), key, offset))(t)
		must(ledger.Succeed(t.Context(), key, a.Lease.Token))(t)
	}
	execute(t, pool, "SELECT pg_stat_force_next_flush()")
	var updates, hot int
	noError(t, pool.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_all_tables
		WHERE schemaname = 'stopbank' AND relname = 'lease_domains'`).Scan(&updates, &hot))
	if updates < keys*(2*rounds-1) || hot < updates*9/10 {
		t.Errorf("%d of %d updates were HOT", hot, updates)
	}
	listed := func() (n int) {
		noError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM stopbank.lease_domains WHERE listed").Scan(&n))
		return n
	}
	a := must(ledger.TryAcquire(t.Context(), "key 7", keys*rounds))(t)
	if n := listed(); n != keys {
		t.Errorf("%d listed before Compact, want %d", n, keys)
	}
	other := must(durable.New(durable.Config{Store: named(t, pool, "l")}))(t) // the first has looked when it began, less than a minute ago
	noError(t, other.Compact(t.Context(), keys*rounds))
	if n := listed(); n != 1 {
		t.Errorf("%d listed after Compact, want the one that is held", n)
	}
	for held, err := range ledger.Held(t.Context()) {
		if err != nil || held.Token != a.Lease.Token {
			t.Errorf("held: %+v, %v", held, err)
		}
	}
}

// What lay in the columns of an older schema is listed as before.
func TestMigrateListed(t *testing.T) {
	pool := fresh(t, 1)
	older := fstest.MapFS{}
	for _, name := range []string{"0001_domains.sql", "0002_outbox.sql", "0003_dead_letters.sql"} {
		sql := must(fs.ReadFile(leasepg.Migrations(), "migrations/"+name))(t)
		older["migrations/"+name] = &fstest.MapFile{Data: sql}
	}
	noError(t, leasepg.MigrateFrom(t.Context(), pool, older))
	execute(t, pool, `INSERT INTO stopbank.lease_domains (ledger, domain, version, held, ready, state)
		SELECT 'l', d, 1, d = 'a', d = 'b', '' FROM unnest('{a,b,c}'::bytea[]) AS d`)
	noError(t, leasepg.Migrate(t.Context(), pool))
	s := must(leasepg.OpenStore(t.Context(), leasepg.StoreConfig{Pool: pool, Name: "l"}))(t)
	if held, ready := list(t, s, durable.Held), list(t, s, durable.Ready); !slices.Equal(held, []string{"a"}) ||
		!slices.Equal(ready, []string{"b"}) {
		t.Errorf("held %q, ready %q", held, ready)
	}
}

// SPDX-License-Identifier: Apache-2.0

// Benchmark rows of the ledgers in PostgreSQL and JetStream, beside the least that any ledger must do there.

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasenats"
	"github.com/stopbank/stopbank/lease/leasepg"
	"github.com/stopbank/stopbank/lease/leasepg/pgtest"
)

const (
	engineDomains = 16      // or rows or keys, that a goroutine cycles through
	asBare        = 1 / 0.9 // target ratio to two bare updates
)

// smallState is as long as a small state of a ledger.
var smallState = []byte(strings.Repeat("s", 64))

// engineRows: acquire and complete a lease by several goroutines, beside two updates by key at their last revision, each in its
// own commit, on the same server through the same connections.
func engineRows() []row {
	var onNATS, onPG []row
	for _, goroutines := range []int{1, 4, 16} {
		add := func(engine string, store func() durable.Store, update func() func(key string) func()) row {
			return row{layer: "lease/" + engine, title: "acquire + succeed", goroutines: goroutines, variants: []variant{
				{"durable.Ledger over " + engine + ", TryAcquire + Succeed", 0,
					sync.OnceValue(func() instance { return perWorker(goroutines, cycleLedger(store())) })},
				{"two bare updates", asBare, sync.OnceValue(func() instance { return perWorker(goroutines, cycleBare(update())) })},
			}}
		}
		ledger := fmt.Sprint("by-", goroutines)
		onNATS = append(onNATS, add("leasenats", func() durable.Store {
			return must(leasenats.OpenStore(context.Background(), leasenats.StoreConfig{Conn: jetStream(), Bucket: "ledger", Name: ledger}))
		}, func() func(key string) func() { return natsUpdate(ledger) }))
		onPG = append(onPG, add("leasepg", func() durable.Store {
			return must(leasepg.OpenStore(context.Background(), leasepg.StoreConfig{Pool: postgres(), Name: ledger}))
		}, func() func(key string) func() { return pgUpdate(fmt.Sprint("bare_", goroutines)) }))
	}
	if !havePostgres() {
		return onNATS
	}
	return append(onNATS, onPG...)
}

// engineName is as long as a UUID.
func engineName(high uint32, low int) string {
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", high, low)
}

// perWorker is an instance whose goroutines have an operation each, which all rounds go on with.
func perWorker(goroutines int, operation func(worker uint32) func()) instance {
	all, starts := make([]func(), goroutines), -1
	for worker := range all {
		all[worker] = operation(uint32(worker))
	}
	return func() func() {
		starts++
		return all[starts%goroutines]
	}
}

// cycleLedger cycles through domains of its own.
func cycleLedger(store durable.Store) func(worker uint32) func() {
	ctx, ledger := context.Background(), must(durable.New(durable.Config{Store: store, MaxRetries: lease.DefaultRetries}))
	return func(worker uint32) func() {
		offset := int64(-1)
		return func() {
			offset++
			name := engineName(worker, int(offset%engineDomains))
			a := must(ledger.TryAcquire(ctx, name, offset))
			must(ledger.Succeed(ctx, name, a.Lease.Token))
			if worker == 0 && offset%1024 == 1023 { // like a consumer's commits
				must(0, ledger.Compact(ctx, offset-1024))
			}
		}
	}
}

// cycleBare makes two updates by key an operation and keeps no invariants.
func cycleBare(update func(key string) func()) func(worker uint32) func() {
	return func(worker uint32) func() {
		var updates [engineDomains]func()
		for i := range updates {
			updates[i] = update(engineName(worker, i))
		}
		next := 0
		return func() {
			updates[next%engineDomains]()
			updates[next%engineDomains]()
			next++
		}
	}
}

// natsUpdate makes a key in a bucket and returns how to update it.
func natsUpdate(prefix string) func(key string) func() {
	ctx := context.Background()
	bucket := must(must(jetstream.New(jetStream())).CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "bare"}))
	return func(key string) func() {
		key = prefix + "." + key
		revision := must(bucket.Create(ctx, key, smallState))
		return func() { revision = must(bucket.Update(ctx, key, smallState, revision)) }
	}
}

// pgUpdate makes a row in a table and returns how to update it.
func pgUpdate(table string) func(key string) func() {
	ctx := context.Background()
	must(postgres().Exec(ctx, "CREATE TABLE "+table+" (key bytea PRIMARY KEY, version bigint NOT NULL, state bytea NOT NULL) WITH (fillfactor = 70)"))
	update := "UPDATE " + table + " SET version = version + 1, state = $2 WHERE key = $1"
	return func(name string) func() {
		key := []byte(name)
		must(postgres().Exec(ctx, "INSERT INTO "+table+" VALUES ($1, 1, $2)", key, smallState))
		return func() {
			if done := must(postgres().Exec(ctx, update, key, smallState)); done.RowsAffected() != 1 {
				exit("%v", done)
			}
		}
	}
}

// The servers: NATS in a process of its own, and PostgreSQL, that of STOPBANK_POSTGRES_URL or a private one with fsync on. The
// first row starts them.
var (
	jetStream = sync.OnceValue(func() *nats.Conn {
		cmd := exec.Command(os.Args[0])
		cmd.Env, cmd.Stderr = append(os.Environ(), natsVariable+"=1"), os.Stderr
		in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
		must(0, cmd.Start())
		atEnd(func() {
			_ = in.Close()
			_ = cmd.Wait()
		})
		return must(nats.Connect(strings.TrimSpace(must(bufio.NewReader(out).ReadString('\n')))))
	})
	pgURL = sync.OnceValue(func() string {
		if o := told(); o != nil {
			return o.URL
		}
		s := must(pgtest.Open(context.Background(), true))
		atEnd(func() { _ = s.Close() })
		fmt.Fprintf(os.Stderr, "\r\033[Kleasepg: %s\n", s.About())
		return s.URL()
	})
	postgres = sync.OnceValue(func() *pgxpool.Pool {
		pool := connect(context.Background(), nil)
		must(0, leasepg.Migrate(context.Background(), pool))
		return pool
	})
	havePostgres = sync.OnceValue(func() bool { return pgtest.Available(context.Background()) == nil })
)

// connect returns a pool for one member of a team, whose statements it counts, or for the rows of a ledger.
func connect(ctx context.Context, t *team) *pgxpool.Pool {
	cfg := must(pgxpool.ParseConfig(pgURL()))
	cfg.MaxConns = 16
	if t != nil {
		cfg.ConnConfig.Tracer = t
	}
	return must(pgxpool.NewWithConfig(ctx, cfg))
}

// natsVariable makes this program a NATS server.
const natsVariable = "STOPBANK_BENCH_NATS"

// serveNATS keeps its files in a temporary folder, prints its address, and ends with the standard input.
func serveNATS() {
	dir := must(os.MkdirTemp("", "bench-nats"))
	atEnd(func() { _ = os.RemoveAll(dir) })
	s := must(server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir,
		NoLog: true, NoSigs: true}))
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		exit("the NATS server does not start")
	}
	fmt.Println(s.ClientURL())
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.Shutdown()
	s.WaitForShutdown()
	stopServers()
}

var servers struct {
	sync.Mutex
	stops []func()
}

func atEnd(stop func()) {
	servers.Lock()
	servers.stops = append(servers.stops, stop)
	servers.Unlock()
}

func stopServers() {
	servers.Lock()
	defer servers.Unlock()
	for ; len(servers.stops) > 0; servers.stops = servers.stops[1:] {
		servers.stops[0]()
	}
}

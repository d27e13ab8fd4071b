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

	"github.com/stopbank/stopbank/internal/pgtest"
	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasenats"
	"github.com/stopbank/stopbank/lease/leasepg"
)

const (
	// engineDomains is the number of domains, or of rows or keys, that a goroutine cycles through.
	engineDomains = 16
	// asBare is the target ratio to two bare updates.
	asBare = 1 / 0.9
)

// smallState is as long as a small state of a ledger.
var smallState = []byte(strings.Repeat("s", 64))

// engineRows: acquire and complete a lease by several goroutines, beside two updates by key at their last revision, each in its
// own commit, on the same server through the same connections.
func engineRows() []row {
	var onNATS, onPG []row
	for _, goroutines := range []int{1, 4, 16} {
		add := func(layer string, store func() durable.Store, update func() func(worker, key int) func()) row {
			return row{layer: layer, title: "acquire + succeed", goroutines: goroutines, variants: []variant{
				{"durable.Ledger over " + layer[len("lease/"):] + ", TryAcquire + Succeed", 0,
					sync.OnceValue(func() instance { return cycleLedger(store(), goroutines) })},
				{"two bare updates", asBare, sync.OnceValue(func() instance { return cycleBare(update(), goroutines) })},
			}}
		}
		ledger := fmt.Sprint("by-", goroutines)
		onNATS = append(onNATS, add("lease/leasenats", func() durable.Store {
			return must(leasenats.OpenStore(context.Background(),
				leasenats.StoreConfig{Conn: jetStream(), Bucket: "ledger", Name: ledger}))
		}, func() func(worker, key int) func() { return natsUpdate(ledger) }))
		onPG = append(onPG, add("lease/leasepg", func() durable.Store {
			return must(leasepg.OpenStore(context.Background(), leasepg.StoreConfig{Pool: postgres(), Name: ledger}))
		}, func() func(worker, key int) func() { return pgUpdate(fmt.Sprint("bare_", goroutines)) }))
	}
	if !havePostgres() {
		return onNATS
	}
	return append(onNATS, onPG...)
}

func engineName(worker, i int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", worker, i) }

// cycleLedger drives a ledger as cycleBare drives its engine: each goroutine cycles through its own domains.
func cycleLedger(store durable.Store, goroutines int) instance {
	ctx, ledger, starts := context.Background(), must(durable.New(durable.Config{Store: store, MaxRetries: lease.DefaultRetries})), 0
	offsets := make([]int64, goroutines)
	return func() func() {
		worker := starts % goroutines
		starts++
		return func() {
			offset := offsets[worker]
			offsets[worker]++
			name := engineName(worker, int(offset%engineDomains))
			a := must(ledger.TryAcquire(ctx, name, offset))
			must(ledger.Succeed(ctx, name, a.Lease.Token))
			if worker == 0 && offset%1024 == 1023 { // like a consumer's commits
				must(0, ledger.Compact(ctx, offset-1024))
			}
		}
	}
}

// cycleBare makes two updates an operation and keeps no invariants.
func cycleBare(update func(worker, key int) func(), goroutines int) instance {
	updates, starts := make([][engineDomains]func(), goroutines), 0
	for worker := range updates {
		for i := range updates[worker] {
			updates[worker][i] = update(worker, i)
		}
	}
	return func() func() {
		mine, i := &updates[starts%goroutines], 0
		starts++
		return func() {
			mine[i%engineDomains]()
			mine[i%engineDomains]()
			i++
		}
	}
}

// natsUpdate makes keys in a bucket and returns how to update them.
func natsUpdate(prefix string) func(worker, key int) func() {
	ctx := context.Background()
	bucket := must(must(jetstream.New(jetStream())).CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "bare"}))
	return func(worker, i int) func() {
		key := prefix + "." + engineName(worker, i)
		revision := must(bucket.Create(ctx, key, smallState))
		return func() { revision = must(bucket.Update(ctx, key, smallState, revision)) }
	}
}

// pgUpdate makes rows in a table and returns how to update them.
func pgUpdate(table string) func(worker, key int) func() {
	ctx := context.Background()
	must(postgres().Exec(ctx, "CREATE TABLE "+table+" (key bytea PRIMARY KEY, version bigint NOT NULL, state bytea NOT NULL) WITH (fillfactor = 70)"))
	return func(worker, i int) func() {
		key := []byte(engineName(worker, i))
		must(postgres().Exec(ctx, "INSERT INTO "+table+" VALUES ($1, 1, $2)", key, smallState))
		return func() {
			if done := must(postgres().Exec(ctx, "UPDATE "+table+" SET version = version + 1, state = $2 WHERE key = $1", key,
				smallState)); done.RowsAffected() != 1 {
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
	defer servers.Unlock()
	servers.stops = append(servers.stops, stop)
}

func stopServers() {
	servers.Lock()
	defer servers.Unlock()
	for _, stop := range servers.stops {
		stop()
	}
	servers.stops = nil
}

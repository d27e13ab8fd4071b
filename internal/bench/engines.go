// SPDX-License-Identifier: Apache-2.0

// The servers that consumers are measured on.

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

	"github.com/stopbank/stopbank/lease/leasepg"
	"github.com/stopbank/stopbank/lease/leasepg/pgtest"
)

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
		pool := connect(context.Background())
		must(0, leasepg.Migrate(context.Background(), pool))
		return pool
	})
	havePostgres = sync.OnceValue(func() bool { return pgtest.Available(context.Background()) == nil })
)

// connect returns a pool for one member of a team, or for what it works on.
func connect(ctx context.Context) *pgxpool.Pool {
	cfg := must(pgxpool.ParseConfig(pgURL()))
	cfg.MaxConns = 16
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

// Benchmark rows of the ledger on NATS JetStream.

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasenats"
)

// natsDomains is the number of domains, or keys, that a goroutine cycles through.
const natsDomains = 16

func leasenatsRows() []row { return []row{natsRow(1), natsRow(4), natsRow(16)} }

// natsRow: acquire and complete a lease by several goroutines, beside the minimum cost of any ledger in a bucket: two updates of a
// key at its last revision by the key-value client, on the same server through the same connection.
func natsRow(goroutines int) row {
	title := "acquire + succeed in JetStream, one goroutine at a time"
	if goroutines > 1 {
		title = fmt.Sprintf("acquire + succeed in JetStream, %d goroutines on domains of their own", goroutines)
	}
	ours := sync.OnceValue(func() *natsLedger { return newNATSLedger(goroutines) })
	bare := sync.OnceValue(func() *natsBare { return newNATSBare(goroutines) })
	return row{"lease/leasenats", title, false,
		variant{"durable.Ledger over leasenats, TryAcquire + Succeed", func() func(int) { return split(goroutines, ours().loop) }},
		[]peer{{variant{"two KeyValue.Update of a key", func() func(int) { return split(goroutines, bare().loop) }}, 1 / 0.9}},
	}
}

// jetStream connects to a server in this process, with files in a temporary folder; the first call starts it, endNATS stops it.
var (
	jetStream = sync.OnceValue(func() *nats.Conn {
		dir, err := os.MkdirTemp("", "bench-nats")
		if err != nil {
			exit("%v", err)
		}
		natsDir = dir
		natsServer, err = server.NewServer(&server.Options{
			Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true,
		})
		if err != nil {
			exit("%v", err)
		}
		natsServer.Start()
		if !natsServer.ReadyForConnections(20 * time.Second) {
			exit("the NATS server does not start")
		}
		conn, err := nats.Connect(natsServer.ClientURL())
		if err != nil {
			exit("%v", err)
		}
		return conn
	})
	natsServer *server.Server
	natsDir    string
)

func endNATS() {
	if natsServer != nil {
		natsServer.Shutdown()
		natsServer.WaitForShutdown()
	}
	if natsDir != "" {
		_ = os.RemoveAll(natsDir)
	}
}

// natsLedger drives a ledger as natsBare drives its bucket: each worker cycles through its own domains.
type natsLedger struct {
	ledger  *durable.Ledger
	offsets []int64 // by worker
}

func newNATSLedger(goroutines int) *natsLedger {
	store, err := leasenats.Open(context.Background(), leasenats.Config{Conn: jetStream(), Bucket: "ledger", Ledger: fmt.Sprint("by-", goroutines)})
	if err != nil {
		exit("%v", err)
	}
	ledger, err := durable.New(durable.Config{Store: store, MaxRetries: lease.DefaultRetries})
	if err != nil {
		exit("%v", err)
	}
	r := &natsLedger{ledger, make([]int64, goroutines)}
	for worker := range goroutines {
		r.loop(worker, natsDomains)
	}
	return r
}

func natsName(worker int, i int64) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", worker, i) }

func (r *natsLedger) loop(worker, n int) {
	ctx := context.Background()
	for range n {
		offset := r.offsets[worker]
		r.offsets[worker]++
		name := natsName(worker, offset%natsDomains)
		a, err := r.ledger.TryAcquire(ctx, name, offset)
		if err != nil {
			exit("%v", err)
		}
		if _, err := r.ledger.Succeed(ctx, name, a.Lease.Token); err != nil {
			exit("%v", err)
		}
		if worker == 0 && offset%1024 == 1023 { // like a consumer's commits
			if err := r.ledger.Compact(ctx, offset-1024); err != nil {
				exit("%v", err)
			}
		}
	}
}

// natsBare updates keys and keeps no invariants.
type natsBare struct {
	bucket    jetstream.KeyValue
	state     []byte // as long as a small state of a ledger
	next      []int64
	revisions [][natsDomains]uint64 // by worker
}

func newNATSBare(goroutines int) *natsBare {
	ctx := context.Background()
	js, err := jetstream.New(jetStream())
	if err != nil {
		exit("%v", err)
	}
	bucket, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "bare"})
	if err != nil {
		exit("%v", err)
	}
	b := &natsBare{bucket, []byte(strings.Repeat("s", 64)), make([]int64, goroutines), make([][natsDomains]uint64, goroutines)}
	for worker := range goroutines {
		for i := range int64(natsDomains) {
			if b.revisions[worker][i], err = bucket.Create(ctx, b.key(worker, i), b.state); err != nil {
				exit("%v", err)
			}
		}
	}
	return b
}

func (b *natsBare) key(worker int, i int64) string {
	return fmt.Sprintf("by-%d.%s", len(b.next), natsName(worker, i))
}

func (b *natsBare) loop(worker, n int) {
	ctx := context.Background()
	for range n {
		i := b.next[worker] % natsDomains
		b.next[worker]++
		key, at := b.key(worker, i), &b.revisions[worker][i]
		for range 2 {
			revision, err := b.bucket.Update(ctx, key, b.state, *at)
			if err != nil {
				exit("%v", err)
			}
			*at = revision
		}
	}
}

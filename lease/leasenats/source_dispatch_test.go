// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// A dispatcher runs on a source with its ledger on the same server, through failures, a drain, a restart and a second owner.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasenats"
)

// pipeline processes ORDERS with a durable ledger on the same server.
type pipeline struct {
	source *leasenats.Source
	d      *dispatch.Dispatcher
	stop   func() error
}

func runPipeline(t *testing.T, nc *nats.Conn, handler dispatch.Handler, change func(*dispatch.Config)) *pipeline {
	t.Helper()
	store := must(leasenats.OpenStore(ctx, leasenats.StoreConfig{Conn: nc, Bucket: "leases"}))(t)
	ledger, err := durable.New(durable.Config{Store: store, MaxRetries: 5})
	if err != nil {
		t.Fatal(err)
	}
	p := &pipeline{source: source(t, nc, nil)}
	cfg := dispatch.Config{
		Handler: handler, Backoff: 5 * time.Millisecond, MaxBackoff: 20 * time.Millisecond,
		CommitEvery: 10 * time.Millisecond, DrainTimeout: 5 * time.Second, DeadLetter: dispatch.Discard,
	}
	if change != nil {
		change(&cfg)
	}
	if p.d, err = dispatch.New(dispatch.Partition{Ledger: ledger, Source: p.source}, cfg); err != nil {
		t.Fatal(err)
	}
	running, cancel := context.WithCancel(ctx)
	result := make(chan error, 1)
	go func() { result <- p.d.Run(running) }()
	p.stop = sync.OnceValue(func() error { cancel(); return <-result })
	t.Cleanup(func() { _ = p.stop() })
	return p
}

// written is a downstream store: it keeps what each domain has done, and compares and swaps it together with the token.
type written struct {
	mu      sync.Mutex
	tokens  map[string]lease.Token
	offsets map[string][]int64
}

func (w *written) write(job dispatch.Job) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	domain := job.Record.Domain
	if job.Lease.Token < w.tokens[domain] {
		return errors.New("a smaller token")
	}
	w.tokens[domain] = job.Lease.Token
	if done := w.offsets[domain]; len(done) > 0 && job.Record.Offset <= done[len(done)-1] {
		return nil
	}
	w.offsets[domain] = append(w.offsets[domain], job.Record.Offset)
	return nil
}

func (w *written) count() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, offsets := range w.offsets {
		n += len(offsets)
	}
	return n
}

func newWritten() *written {
	return &written{tokens: map[string]lease.Token{}, offsets: map[string][]int64{}}
}

// The whole pipeline on JetStream, with failures, through a drain, a restart of the server and a second owner.
func TestSourceUnderDispatcher(t *testing.T) {
	const n, keys = 600, 40
	dir := t.TempDir()
	server := single(t, dir, 0)
	nc := connect(t, server.ClientURL())
	orders(t, nc, n, keys)
	w := newWritten()
	handler := func(_ context.Context, job dispatch.Job) error {
		if job.Record.Offset%13 == 0 && job.Lease.RetryCount == 0 {
			return errors.New("once")
		}
		return w.write(job)
	}
	p := runPipeline(t, nc, handler, nil)
	eventually(t, "a third", func() bool { return w.count() > n/3 })
	if err := p.stop(); err != nil {
		t.Fatalf("drain: %v", err)
	}
	p.source.Close()
	floor := p.d.Stats().Committed
	if floor <= 1 || floor > n {
		t.Errorf("committed: %d", floor)
	}

	// It begins where the first one ended, on a restarted server that is restarted once more.
	p = runPipeline(t, nc, handler, nil)
	eventually(t, "the second run", func() bool { return p.d.Stats().Floor > 0 })
	if first := p.d.Stats().Committed; first < floor {
		t.Errorf("begins at %d, committed was %d", first, floor)
	}
	port := server.Addr().String()
	port = port[strings.LastIndex(port, ":")+1:]
	eventually(t, "two thirds", func() bool { return w.count() > 2*n/3 })
	stop(server)
	var number int
	fmt.Sscan(port, &number)
	single(t, dir, number)
	eventually(t, "all of them", func() bool { return p.d.Stats().Committed == n+1 })
	if err := p.stop(); err != nil {
		t.Errorf("drain: %v", err)
	}
	check(t, w, n, keys)
}

// The old owner goes on after the partition was claimed: its commits are rejected, its handlers fenced, and every order is done
// once.
func TestSourceTwoOwners(t *testing.T) {
	const n, keys = 300, 10
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	orders(t, nc, n, keys)
	w := newWritten()
	hang, began := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var mu sync.Mutex
	var refused error
	seen := map[dispatch.Kind]error{}
	old := runPipeline(t, nc, func(_ context.Context, job dispatch.Job) error {
		if job.Record.Offset == 101 {
			once.Do(func() { close(began) })
			<-hang
			err := w.write(job)
			mu.Lock()
			defer mu.Unlock()
			refused = err
			return err
		}
		return w.write(job)
	}, func(cfg *dispatch.Config) {
		cfg.Observer = observer(func(e dispatch.Event) { mu.Lock(); seen[e.Kind] = e.Err; mu.Unlock() })
	})
	<-began
	young := runPipeline(t, nc, func(_ context.Context, job dispatch.Job) error { return w.write(job) },
		func(cfg *dispatch.Config) { cfg.Grace = 100 * time.Millisecond })
	eventually(t, "the new owner", func() bool { return young.d.Stats().Committed == n+1 })
	close(hang)
	eventually(t, "the fence", func() bool { return old.d.Stats().Lost > 0 })
	_ = old.stop()
	if err := young.stop(); err != nil {
		t.Errorf("drain: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if refused == nil {
		t.Error("the register took a write of the old owner")
	}
	if err := seen[dispatch.Fenced]; !errors.Is(err, lease.ErrLeaseNotFound) && !errors.Is(err, lease.ErrTokenMismatch) {
		t.Errorf("fenced: %v", err)
	}
	check(t, w, n, keys)
}

type observer func(dispatch.Event)

func (o observer) Observe(e dispatch.Event) { o(e) }

// check: each order once, in order.
func check(t *testing.T, w *written, n, keys int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range keys {
		var want []int64
		for i := int64(k) + 1; i <= int64(n); i += int64(keys) {
			want = append(want, i)
		}
		if got := w.offsets[fmt.Sprint("orders.", k)]; !slices.Equal(got, want) {
			t.Errorf("orders.%d: %v, want %v", k, got, want)
		}
	}
}

package leasenats_test

// This file holds the Source against real servers: order, partitions, reading again, the position, two owners, restarts.

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
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasenats"
)

// orders makes a stream and publishes n messages to orders.0 … orders.keys-1 in turn.
func orders(t testing.TB, nc *nats.Conn, n, keys int) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	publish(t, js, n, keys)
	return js
}

func publish(t testing.TB, js jetstream.JetStream, n, keys int) {
	t.Helper()
	for i := range n {
		if _, err := js.Publish(ctx, fmt.Sprint("orders.", i%keys), fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
}

func source(t testing.TB, nc *nats.Conn, change func(*leasenats.SourceConfig)) *leasenats.Source {
	t.Helper()
	cfg := leasenats.SourceConfig{Conn: nc, Stream: "ORDERS", Bucket: "positions", Partition: "all"}
	if change != nil {
		change(&cfg)
	}
	s, err := leasenats.OpenSource(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// fetch reads until it has want records.
func fetch(t testing.TB, s *leasenats.Source, from int64, want int) []dispatch.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var all []dispatch.Record
	for len(all) < want {
		records, err := s.Fetch(ctx, from, min(100, want-len(all)))
		if err != nil {
			t.Fatal(err)
		}
		if len(records) == 0 {
			t.Fatal("an empty slice without an error")
		}
		all = append(all, records...)
		from = all[len(all)-1].Offset + 1
	}
	return all
}

func TestSourceReads(t *testing.T) {
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	js := orders(t, nc, 300, 7)
	s := source(t, nc, nil)
	for _, from := range []int64{-5, 0, 1, 2, 250, 1, 300, 40, 1} { // forth and back
		want := 300 - max(0, int(from)-1)
		records := fetch(t, s, from, want)
		for i, r := range records {
			if r.Offset != max(1, from)+int64(i) || r.Domain != fmt.Sprint("orders.", (r.Offset-1)%7) || string(r.Payload) != fmt.Sprint(r.Offset-1) {
				t.Fatalf("from %d, record %d: %+v", from, i, r)
			}
		}
	}

	// At the end it waits, until there is one, or the context ends; nothing is lost by that.
	for range 3 {
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		if records, err := s.Fetch(short, 301, 10); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("at the end: %v, %v", records, err)
		}
		cancel()
	}
	publish(t, js, 2, 1)
	if r := fetch(t, s, 301, 2); r[0].Offset != 301 || r[1].Offset != 302 {
		t.Errorf("after the wait: %+v", r)
	}
	if end, err := s.End(ctx); end != 303 || err != nil {
		t.Errorf("end: %d, %v", end, err)
	}
}

func TestSourcePartitionAndDomain(t *testing.T) {
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	js := orders(t, nc, 100, 10)
	if stream, err := js.Stream(ctx, "ORDERS"); err != nil {
		t.Fatal(err)
	} else if err := stream.Purge(ctx, jetstream.WithPurgeSequence(11)); err != nil { // retention takes the first ten away
		t.Fatal(err)
	}
	s := source(t, nc, func(cfg *leasenats.SourceConfig) {
		cfg.Subjects = []string{"orders.3", "orders.4"}
		cfg.Domain = func(m jetstream.Msg) string { return strings.TrimPrefix(m.Subject(), "orders.") }
	})
	if from, err := s.Committed(ctx); from != 11 || err != nil {
		t.Errorf("begins at %d, %v", from, err)
	}
	var got []string
	for _, r := range fetch(t, s, 1, 18) {
		got = append(got, fmt.Sprint(r.Offset, "/", r.Domain))
	}
	var want []string
	for i := int64(14); i <= 100; i += 10 {
		want = append(want, fmt.Sprint(i, "/3"), fmt.Sprint(i+1, "/4"))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSourcePosition(t *testing.T) {
	server := single(t, t.TempDir(), 0)
	nc := connect(t, server.ClientURL())
	orders(t, nc, 50, 5)
	first := source(t, nc, nil)
	if err := first.Commit(ctx, 3); !errors.Is(err, leasenats.ErrSource) {
		t.Errorf("without a claim: %v", err)
	}
	must(t, first, 1)
	for _, floor := range []int64{5, 4, 5, 20} {
		if err := first.Commit(ctx, floor); err != nil {
			t.Error(err)
		}
	}

	// Another partition has a position of its own.
	other := source(t, nc, func(cfg *leasenats.SourceConfig) { cfg.Partition = "other" })
	must(t, other, 1)

	// Who claims later wins, at once and for good.
	second := source(t, nc, nil)
	must(t, second, 20)
	err := first.Commit(ctx, 30)
	var lost *leasenats.LostError
	if !errors.As(err, &lost) || !errors.Is(err, leasenats.ErrLost) || lost.Floor != 30 || lost.Partition != "all" {
		t.Errorf("the former owner: %v", err)
	}
	if err := second.Commit(ctx, 25); err != nil {
		t.Error(err)
	}
	must(t, first, 25) // it comes back
	if err := second.Commit(ctx, 26); !errors.Is(err, leasenats.ErrLost) {
		t.Errorf("the former owner: %v", err)
	}

	// A write whose reply was lost is known again: the key moves on under the owner's own name.
	js, _ := jetstream.New(nc)
	kv, err := js.KeyValue(ctx, "positions")
	if err != nil {
		t.Fatal(err)
	}
	entry, err := kv.Get(ctx, "source-ORDERS.all")
	if err != nil {
		t.Fatal(err)
	}
	_, owner, _ := strings.Cut(string(entry.Value()), " ")
	if _, err := kv.Put(ctx, "source-ORDERS.all", []byte("27 "+owner)); err != nil {
		t.Fatal(err)
	}
	if err := first.Commit(ctx, 28); err != nil {
		t.Errorf("after a lost reply: %v", err)
	}

	if _, err := kv.Put(ctx, "source-ORDERS.all", []byte("rubbish")); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Committed(ctx); !errors.Is(err, leasenats.ErrSource) {
		t.Errorf("rubbish: %v", err)
	}
	if err := kv.Delete(ctx, "source-ORDERS.all"); err != nil {
		t.Fatal(err)
	}
	must(t, second, 1)
}

func must(t *testing.T, s *leasenats.Source, want int64) {
	t.Helper()
	if floor, err := s.Committed(ctx); floor != want || err != nil {
		t.Errorf("committed %d, %v, want %d", floor, err, want)
	}
}

func TestOpenSourceRefuses(t *testing.T) {
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	orders(t, nc, 1, 1)
	for field, change := range map[string]func(*leasenats.SourceConfig){
		"Conn":      func(cfg *leasenats.SourceConfig) { cfg.Conn = nil },
		"Stream":    func(cfg *leasenats.SourceConfig) { cfg.Stream = "" },
		"Bucket":    func(cfg *leasenats.SourceConfig) { cfg.Bucket = "a.b" },
		"Partition": func(cfg *leasenats.SourceConfig) { cfg.Partition = "a b" },
		"Timeout":   func(cfg *leasenats.SourceConfig) { cfg.Timeout = -1 },
		"Replicas":  func(cfg *leasenats.SourceConfig) { cfg.Replicas = 6 },
	} {
		cfg := leasenats.SourceConfig{Conn: nc, Stream: "ORDERS", Bucket: "positions", Partition: "all"}
		change(&cfg)
		_, err := leasenats.OpenSource(ctx, cfg)
		var invalid *leasenats.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "SourceConfig."+field {
			t.Errorf("%s: %v", field, err)
		}
	}
	var invalid *leasenats.InvalidError
	_, err := leasenats.OpenSource(nil, leasenats.SourceConfig{Conn: nc, Stream: "ORDERS", Bucket: "positions", Partition: "all"}) //nolint:staticcheck // refused, not a panic
	if !errors.As(err, &invalid) || invalid.Field != "ctx" {
		t.Errorf("a nil context: %v", err)
	}
	_, err = leasenats.OpenSource(ctx, leasenats.SourceConfig{Conn: nc, Stream: "NONE", Bucket: "positions", Partition: "all"})
	if !errors.Is(err, leasenats.ErrSource) || !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("no stream: %v", err)
	}
}

// pipeline works ORDERS off on a durable ledger in the same server.
type pipeline struct {
	source *leasenats.Source
	d      *dispatch.Dispatcher
	stop   func() error
}

func runPipeline(t *testing.T, nc *nats.Conn, handler dispatch.Handler, change func(*dispatch.Config)) *pipeline {
	t.Helper()
	store, err := leasenats.Open(ctx, leasenats.Config{Conn: nc, Bucket: "leases"})
	if err != nil {
		t.Fatal(err)
	}
	ledger, err := durable.New(durable.Config{Store: store, MaxRetries: 5})
	if err != nil {
		t.Fatal(err)
	}
	p := &pipeline{source: source(t, nc, nil)}
	cfg := dispatch.Config{
		Ledger: ledger, Source: p.source, Handler: handler, Backoff: 5 * time.Millisecond, MaxBackoff: 20 * time.Millisecond,
		CommitEvery: 10 * time.Millisecond, DrainTimeout: 5 * time.Second,
	}
	if change != nil {
		change(&cfg)
	}
	if p.d, err = dispatch.New(cfg); err != nil {
		t.Fatal(err)
	}
	running, cancel := context.WithCancel(ctx)
	result := make(chan error, 1)
	go func() { result <- p.d.Run(running) }()
	p.stop = sync.OnceValue(func() error { cancel(); return <-result })
	t.Cleanup(func() { _ = p.stop() })
	return p
}

// written is a register downstream: what each domain has done, in one compare-and-swap with the token.
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

	// It begins where the first one ended, on a server that was away meanwhile and goes away once more.
	p = runPipeline(t, nc, handler, nil)
	eventually(t, "the second run", func() bool { return p.d.Stats().Next > floor })
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

// The old owner goes on after the partition was claimed: its commits are refused, its handlers fenced, and everything is done once.
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
	young := runPipeline(t, nc, func(_ context.Context, job dispatch.Job) error { return w.write(job) }, func(cfg *dispatch.Config) { cfg.Grace = 100 * time.Millisecond })
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

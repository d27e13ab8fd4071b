// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// Members of a group process a stream on a real server with a subject transform.

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
	"github.com/stopbank/stopbank/lease/leasenats"
)

const (
	parts = 8
	keys  = 60
)

// partitioned creates the stream, whose transform maps each key to a partition.
func partitioned(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "ORDERS", Subjects: []string{"orders.*"},
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: "orders.*",
			Destination: fmt.Sprintf("orders.{{partition(%d,1)}}.{{wildcard(1)}}", parts)},
	}); err != nil {
		t.Fatal(err)
	}
	return js
}

// publishing publishes orders of the customers in turn until it is stopped. While the server is away it waits, and may publish an
// order twice.
func publishing(t testing.TB, nc *nats.Conn) (stop func()) {
	js := must(jetstream.New(nc))(t)
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
				short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
				_, _ = js.Publish(short, fmt.Sprint("orders.customer-", i*7%keys), nil) // the test reads the stream at the end
				cancel()
			case <-ctx.Done():
				return
			}
		}
	})
	stop = sync.OnceFunc(func() { cancel(); group.Wait() })
	t.Cleanup(stop)
	return stop
}

func groupConfig(nc *nats.Conn) leasenats.GroupConfig {
	return leasenats.GroupConfig{
		Conn: nc, Stream: "ORDERS", Subject: "orders.*.>", Partitions: parts, Bucket: "group", Session: time.Second,
		Domain: func(r dispatch.Record) string { return r.Domain[strings.LastIndex(r.Domain, ".")+1:] },
		Ledger: lease.Config{MaxRetries: 50},
	}
}

// consumer runs a member until it is stopped.
func consumer(t testing.TB, nc *nats.Conn, handler dispatch.Handler) (stop func() error) {
	t.Helper()
	g := must(leasenats.OpenGroup(ctx, groupConfig(nc)))(t)
	c := must(dispatch.NewConsumer(g, dispatch.Config{
		Handler: handler, DeadLetter: dispatch.Discard, Backoff: 5 * time.Millisecond, MaxBackoff: 20 * time.Millisecond,
		CommitEvery: 20 * time.Millisecond, Grace: 100 * time.Millisecond,
	}))(t)
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = stop() })
	return stop
}

// layout returns the partition of each key. It fails if a key is in two partitions.
func layout(t testing.TB, nc *nats.Conn) map[string][]int64 {
	t.Helper()
	s := source(t, nc, func(cfg *leasenats.SourceConfig) { cfg.Partition = "layout" })
	end := must(s.End(ctx))(t)
	offsets, partition := map[string][]int64{}, map[string]string{}
	for _, r := range fetch(t, s, 1, int(end)-1) {
		tokens := strings.Split(r.Domain, ".")
		key := tokens[2]
		if partition[key] == "" {
			partition[key] = tokens[1]
		}
		if partition[key] != tokens[1] {
			t.Fatalf("%s is in partitions %s and %s", key, partition[key], tokens[1])
		}
		offsets[key] = append(offsets[key], r.Offset)
	}
	return offsets
}

// Members join and leave, the server restarts, one member is cut off: each order is done once, in order for each customer.
func TestGroupWorksOff(t *testing.T) {
	dir := t.TempDir()
	server := single(t, dir, 0)
	at := port(t, server)
	nc := connect(t, server.ClientURL())
	partitioned(t, nc)
	published := publishing(t, nc)
	w := newWritten()
	var mu sync.Mutex
	by := map[string]int{} // effects by member
	handler := func(name string) dispatch.Handler {
		return func(_ context.Context, job dispatch.Job) error {
			if job.Record.Offset%13 == 0 && job.Lease.RetryCount == 0 {
				return errors.New("once")
			}
			time.Sleep(time.Millisecond) // the work
			mu.Lock()
			by[name]++
			mu.Unlock()
			return w.write(job)
		}
	}
	works := func(name string) {
		t.Helper()
		eventually(t, name+" works", func() bool { mu.Lock(); defer mu.Unlock(); return by[name] > 50 })
	}
	a := consumer(t, nc, handler("a"))
	works("a")
	b := consumer(t, connect(t, server.ClientURL()), handler("b"))
	works("b")
	cut := connect(t, server.ClientURL())
	c := consumer(t, cut, handler("c"))
	works("c")
	if err := a(); err != nil {
		t.Errorf("a leaves: %v", err)
	}
	stop(server)
	single(t, dir, at)
	cut.Close() // c cannot leave: after its session others get its partitions
	if err := c(); !is[*leasenats.UnreachableError](err) {
		t.Errorf("c, without a connection: %v", err)
	}
	consumer(t, connect(t, server.ClientURL()), handler("d"))
	works("d")
	published()
	want, n := layout(t, nc), 0
	for _, offsets := range want {
		n += len(offsets)
	}
	eventually(t, "all of them", func() bool { return w.count() == n })
	if err := b(); err != nil {
		t.Errorf("b leaves: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, offsets := range want {
		if !slices.Equal(w.offsets[key], offsets) {
			t.Errorf("%s: %v, want %v", key, w.offsets[key], offsets)
		}
	}
	t.Logf("%d orders of %d customers, by member: %v", n, len(want), by)
}

func TestOpenGroupRefuses(t *testing.T) {
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	partitioned(t, nc)
	for field, change := range map[string]func(*leasenats.GroupConfig){
		"Conn":              func(cfg *leasenats.GroupConfig) { cfg.Conn = nil },
		"Stream":            func(cfg *leasenats.GroupConfig) { cfg.Stream = "" },
		"Stream ":           func(cfg *leasenats.GroupConfig) { cfg.Stream = "NONE" },
		"Subject":           func(cfg *leasenats.GroupConfig) { cfg.Subject = "orders.>" },
		"Partitions":        func(cfg *leasenats.GroupConfig) { cfg.Partitions = 0 },
		"Partitions ":       func(cfg *leasenats.GroupConfig) { cfg.Partitions = 4097 },
		"Partitions  ":      func(cfg *leasenats.GroupConfig) { cfg.Partitions = parts + 1 }, // not the transform's number
		"Bucket":            func(cfg *leasenats.GroupConfig) { cfg.Bucket = "a.b" },
		"Group":             func(cfg *leasenats.GroupConfig) { cfg.Group = "a b" },
		"Group ":            func(cfg *leasenats.GroupConfig) { cfg.Group = strings.Repeat("g", 49) },
		"Session":           func(cfg *leasenats.GroupConfig) { cfg.Session = time.Millisecond },
		"Session ":          func(cfg *leasenats.GroupConfig) { cfg.Session = 2 * time.Hour },
		"Replicas":          func(cfg *leasenats.GroupConfig) { cfg.Replicas = 6 },
		"Ledger.MaxRetries": func(cfg *leasenats.GroupConfig) { cfg.Ledger.MaxRetries = -1 },
	} {
		cfg := groupConfig(nc)
		change(&cfg)
		_, err := leasenats.OpenGroup(ctx, cfg)
		var invalid *lease.InvalidError
		var ledgers *lease.InvalidError
		if !(errors.As(err, &invalid) && invalid.Field == "leasenats.GroupConfig."+strings.TrimSpace(field)) &&
			!(errors.As(err, &ledgers) && "Ledger."+strings.TrimPrefix(ledgers.Field, "durable.Config.") == field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	// If the bucket is deleted, the membership ends a session later.
	g := must(leasenats.OpenGroup(ctx, groupConfig(nc)))(t)
	js, _ := jetstream.New(nc)
	var once sync.Once
	var lost error
	var mu sync.Mutex
	err := g.Hold(ctx, func(ctx context.Context, p dispatch.Partition) {
		once.Do(func() {
			if err := js.DeleteKeyValue(context.Background(), "group"); err != nil {
				t.Error(err)
			}
		})
		<-ctx.Done()
		mu.Lock()
		defer mu.Unlock()
		if lost = context.Cause(ctx); !errors.Is(lost, dispatch.ErrLost) {
			t.Errorf("%s ended by %v", p.Name, context.Cause(ctx))
		}
	})
	if !errors.Is(err, jetstream.ErrStreamNotFound) || lost == nil || !strings.Contains(err.Error(), "start all members again") {
		t.Errorf("the bucket is gone: %v, %v", err, lost)
	}
}

// A server whose disk is full turns JetStream off. Nobody tells its clients, but the error says what to look for.
func TestJetStreamThatIsOff(t *testing.T) {
	server := single(t, t.TempDir(), 0)
	store := must(leasenats.OpenStore(ctx, leasenats.StoreConfig{Conn: connect(t, server.ClientURL()), Bucket: "b"}))(t)
	noError(t, server.DisableJetStream())
	within, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if _, _, err := store.Load(within, "d"); err == nil || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("D12: %v", err)
	}
}

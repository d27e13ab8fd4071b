// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// A source reads from a real server: in order, one partition, again from earlier offsets, and without leaving consumers behind.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasenats"
)

// orders creates a stream and publishes n messages to orders.0 … orders.keys-1 in turn.
func orders(t testing.TB, nc *nats.Conn, n, keys int) jetstream.JetStream {
	t.Helper()
	js := must(jetstream.New(nc))(t)
	must(js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}))(t)
	publish(t, js, n, keys)
	return js
}

func publish(t testing.TB, js jetstream.JetStream, n, keys int) {
	t.Helper()
	for i := range n {
		must(js.Publish(ctx, fmt.Sprint("orders.", i%keys), fmt.Append(nil, i)))(t)
	}
}

func source(t testing.TB, nc *nats.Conn, change func(*leasenats.SourceConfig)) *leasenats.Source {
	t.Helper()
	cfg := leasenats.SourceConfig{Conn: nc, Stream: "ORDERS", Bucket: "positions", Partition: "all"}
	if change != nil {
		change(&cfg)
	}
	s := must(leasenats.OpenSource(ctx, cfg))(t)
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
		records := must(s.Fetch(ctx, from, min(100, want-len(all))))(t)
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
	for _, from := range []int64{-5, 0, 1, 2, 250, 1, 300, 40, 1} { // back and forth
		want := 300 - max(0, int(from)-1)
		records := fetch(t, s, from, want)
		for i, r := range records {
			if r.Offset != max(1, from)+int64(i) || r.Domain != fmt.Sprint("orders.", (r.Offset-1)%7) ||
				string(r.Payload) != fmt.Sprint(r.Offset-1) {
				t.Fatalf("from %d, record %d: %+v", from, i, r)
			}
		}
	}

	// At the end it waits for a message or the end of ctx, and loses no message by that.
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
	} else if err := stream.Purge(ctx, jetstream.WithPurgeSequence(11)); err != nil { // retention removes the first ten
		t.Fatal(err)
	}
	s := source(t, nc, func(cfg *leasenats.SourceConfig) {
		cfg.Subjects = []string{"orders.3", "orders.4"}
		cfg.Domain = func(r dispatch.Record) string { return strings.TrimPrefix(r.Domain, "orders.") }
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
	if end, err := s.End(ctx); end != 96 || err != nil { // later messages of other partitions do not count
		t.Errorf("end: %d, %v", end, err)
	}
	empty := source(t, nc, func(cfg *leasenats.SourceConfig) { cfg.Subjects = []string{"orders.nobody"} })
	if end, err := empty.End(ctx); end != 1 || err != nil {
		t.Errorf("the end of nothing: %d, %v", end, err)
	}
}

// Fetch returns a message's headers and time.
func TestSourceHeadersAndTime(t *testing.T) {
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	js := orders(t, nc, 1, 1)
	m := nats.NewMsg("orders.0")
	m.Header = nats.Header{"b": {"2", "3"}, "a": {"1"}}
	must(js.PublishMsg(ctx, m))(t)
	records := fetch(t, source(t, nc, nil), 1, 2)
	want := []dispatch.Header{{Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte("2")}, {Key: "b", Value: []byte("3")}}
	if diff := cmp.Diff(want, records[1].Headers); records[0].Headers != nil || diff != "" {
		t.Errorf("headers: %v, and (-want +got)\n%s", records[0].Headers, diff)
	}
	if first, second := records[0].Time, records[1].Time; first.IsZero() || second.Before(first) {
		t.Errorf("times: %v, %v", first, second)
	}
}

// A dropped reader leaves no consumer on the server, although a domain that is behind is read again from many places.
func TestSourceLeavesNoConsumers(t *testing.T) {
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	js := orders(t, nc, 100, 5)
	stream := must(js.Stream(ctx, "ORDERS"))(t)
	consumers := func() int {
		info := must(stream.Info(ctx))(t)
		return info.State.Consumers
	}
	s := source(t, nc, nil)
	for i := range int64(20) {
		fetch(t, s, 1+i*7%90, 3)
	}
	eventually(t, "two readers", func() bool { return consumers() <= 2 })
	s.Close()
	eventually(t, "none", func() bool { return consumers() == 0 })
}

// If the stream is deleted, a Fetch that waits at its end fails; the client by itself would retry for ever.
func TestSourceStreamGone(t *testing.T) {
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	js := orders(t, nc, 3, 1)
	s := source(t, nc, nil)
	fetch(t, s, 1, 3)
	ended := make(chan error, 1)
	go func() { _, err := s.Fetch(ctx, 4, 10); ended <- err }()
	noError(t, js.DeleteStream(ctx, "ORDERS"))
	select {
	case err := <-ended:
		if !strings.Contains(fmt.Sprint(err), "leasenats: stream ") {
			t.Errorf("Fetch: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Fetch waits for ever")
	}
}

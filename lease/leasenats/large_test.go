// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// Records as large as the server takes them, and links that are slow, break, or fall silent (L20).

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasenats"
)

// lines dials: the first connection is that of a Group, the others are for its records.
type lines struct {
	group, records *ownertest.Line
	dialed         atomic.Int32
}

func (l *lines) Dial(network, address string) (net.Conn, error) {
	line := l.records
	if l.dialed.Add(1) == 1 {
		line = l.group
	}
	return line.DialContext(ctx, network, address)
}

// over connects over lines of its own.
func over(t testing.TB, url string) (*nats.Conn, *lines) {
	t.Helper()
	l := &lines{group: ownertest.NewLine(t), records: ownertest.NewLine(t)}
	nc := must(nats.Connect(url, nats.Name("orders"), nats.SetCustomDialer(l), nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})))(t)
	t.Cleanup(nc.Close)
	return nc, l
}

// named returns a client of the server by the name of its connection.
func named(t testing.TB, s *server.Server, name string) (c *server.ConnInfo) {
	t.Helper()
	eventually(t, "a connection called "+name, func() bool {
		all := must(s.Connz(nil))(t)
		for _, one := range all.Conns {
			if one.Name == name {
				c = one
			}
		}
		return c != nil
	})
	return c
}

// A backlog of large records comes over a link that needs two Sessions for it. The member keeps its partitions, and of the records
// nothing comes over the connection that renews the membership. The server cuts the other one meanwhile: it is made anew.
func TestLargeRecordsOverASlowLink(t *testing.T) {
	for _, inJournal := range []bool{false, true} {
		t.Run(fmt.Sprint("journal ", inJournal), func(t *testing.T) {
			s := single(t, t.TempDir(), 0)
			js := partitioned(t, connect(t, s.ClientURL()))
			const n, size = 160, 128 << 10
			for i := range n {
				must(js.Publish(ctx, fmt.Sprint("orders.customer-", i%keys), bytes.Repeat([]byte{byte(i)}, size)))(t)
			}
			nc, l := over(t, s.ClientURL())
			shared := l.records // the heartbeats have the rest of the same link
			l.group = shared
			shared.Slow(5 << 20)
			var closed atomic.Bool
			nc.SetClosedHandler(func(*nats.Conn) { closed.Store(true) })
			cfg := groupConfig(nc)
			cfg.Session, cfg.Journal = 2*time.Second, inJournal
			cfg.OnError = func(err error) { t.Logf("the member is told: %v", err) } // a busy machine answers late
			g := must(leasenats.OpenGroup(ctx, cfg))(t)
			var first *server.ConnInfo
			taken := ownertest.Handles(t, g, n, func() {
				first = named(t, s, "orders records")
				noError(t, s.DisconnectClientByID(first.Cid))
			}, func() {
				if second := named(t, s, "orders records"); second.Cid == first.Cid {
					t.Error("the connection that was cut is there")
				}
				if beside := named(t, s, "orders").OutBytes; beside > n*size/10 {
					t.Errorf("L20: %d bytes came over the connection of the membership, beside %d of records", beside, n*size)
				}
			})
			if taken != parts {
				t.Errorf("L20: %d partitions were taken %d times", parts, taken)
			}
			if closed.Load() {
				t.Error("the caller was told that its connection is closed")
			}
			eventually(t, "the end of the connection for records", func() bool {
				return must(s.Connz(nil))(t).NumConns == 2
			})
		})
	}
}

// Every record that the server takes comes, however much larger it is than what a request asks for.
func TestSourceLargestMessages(t *testing.T) {
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	js := orders(t, nc, 0, 1)
	const asked = 16 << 10
	most := int(nc.MaxPayload())
	var want []int
	for _, size := range []int{10, asked, most - 100, most - 100, 0, asked - 200, asked - 10, asked + 1, 3, 3, most - 100, 1} {
		m := nats.NewMsg("orders.0")
		m.Header.Set("Key", strings.Repeat("v", 50))
		m.Data = make([]byte, size)
		must(js.PublishMsg(ctx, m))(t)
		want = append(want, size)
	}
	var got []int
	s := source(t, nc, func(cfg *leasenats.SourceConfig) { cfg.Bytes = asked })
	within, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for from := int64(1); len(got) < len(want); {
		records, err := s.Fetch(within, from, 100)
		if err != nil {
			t.Fatalf("L20: after messages of %v bytes: %v", got, err)
		}
		for _, r := range records {
			got, from = append(got, len(r.Payload)), r.Offset+1
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("L20: messages of %v bytes, want %v", got, want)
	}
	if page := must(s.Fetch(within, 1, 100))(t); len(page) > 3 {
		t.Errorf("L20: %d records at once", len(page))
	}
}

// A reader waits at the end of its log while its connection is cut or falls silent without an end, or the server passes its
// consumer over: what is written then is read.
func TestReaderIsMadeAnew(t *testing.T) {
	for name, disturb := range map[string]func(t *testing.T, s *server.Server, l *lines, js jetstream.JetStream){
		"cut": func(t *testing.T, s *server.Server, _ *lines, _ jetstream.JetStream) {
			noError(t, s.DisconnectClientByID(named(t, s, "orders records").Cid))
		},
		"silent": func(t *testing.T, _ *server.Server, l *lines, _ jetstream.JetStream) {
			dead := l.records
			l.records = ownertest.NewLine(t)
			dead.Cut()
		},
		// as if the server had forgotten it: it says that there is nothing
		"paused": func(t *testing.T, _ *server.Server, _ *lines, js jetstream.JetStream) {
			stream := must(js.Stream(ctx, "ORDERS"))(t)
			for name := range stream.ConsumerNames(ctx).Name() {
				must(stream.PauseConsumer(ctx, name, time.Now().Add(time.Hour)))(t)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits
			s := single(t, t.TempDir(), 0)
			js := orders(t, connect(t, s.ClientURL()), 3, 1)
			nc, l := over(t, s.ClientURL())
			read, end := leasenats.Records(nc)
			t.Cleanup(end)
			source := source(t, nc, func(cfg *leasenats.SourceConfig) { cfg.Read = read })
			fetch(t, source, 1, 3)
			wait := func(between func()) {
				short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				defer cancel()
				between()
				_, _ = source.Fetch(short, 4, 10)
			}
			wait(func() {})
			wait(func() { disturb(t, s, l, js) })
			publish(t, js, 1, 1)
			must(source.End(ctx))(t) // as a dispatcher asks in between
			read4 := make(chan error, 1)
			reading, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			go func() {
				_, err := source.Fetch(reading, 4, 10)
				read4 <- err
			}()
			if err := <-read4; err != nil {
				t.Errorf("L20: what was written after that: %v", err)
			}
		})
	}
}

// The connection for records is made like that of the group, also to a server in the same process.
func TestRecordsOfAServerInThisProcess(t *testing.T) {
	s := start(t, &server.Options{DontListen: true, JetStream: true, StoreDir: t.TempDir()})
	nc := must(nats.Connect("", nats.InProcessServer(s)))(t)
	t.Cleanup(nc.Close)
	orders(t, nc, 3, 1)
	read, end := leasenats.Records(nc)
	t.Cleanup(end)
	fetch(t, source(t, nc, func(cfg *leasenats.SourceConfig) { cfg.Read = read }), 1, 3)
}

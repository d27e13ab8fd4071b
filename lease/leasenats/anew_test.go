// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// A stream is deleted and made anew, put back from a backup and filled again, or replaced by its mirror (D13).

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasenats"
)

func TestStreamMadeAnew(t *testing.T) {
	for _, inJournal := range []bool{false, true} {
		t.Run(fmt.Sprint("journal ", inJournal), func(t *testing.T) {
			ownertest.MadeAnew(t, nil, func(t testing.TB) ownertest.Remade { return remade(t, inJournal) })
		})
	}
}

// A stream is put back from a backup, which keeps when it was created, and filled again beyond the position: what was handled is not
// what it has now.
func TestStreamPutBack(t *testing.T) {
	ownertest.MadeAnew(t, nil, func(t testing.TB) ownertest.Remade {
		r, _ := putBack(t)
		return r
	})
}

// A stream is put back and filled again after its position was claimed, before a reader begins.
func TestStreamPutBackBehindAClaim(t *testing.T) {
	r, nc := putBack(t)
	fill := func() {
		for range 10 {
			r.Append("k", nil)
		}
	}
	fill()
	first := source(t, nc, nil)
	wantFloor(t, first, 1)
	fetch(t, first, 1, 11)
	noError(t, first.Commit(ctx, 12))
	second := source(t, nc, nil)
	wantFloor(t, second, 12)
	r.Remake()
	fill()
	fill()
	if records, err := second.Fetch(ctx, 12, 100); !errors.Is(err, dispatch.ErrRewound) {
		t.Errorf("D13: read %d records, %v; want ErrRewound", len(records), err)
	}
}

// putBack is a group on a stream that Remake puts back to its first message.
func putBack(t testing.TB) (ownertest.Remade, *nats.Conn) {
	t.Helper()
	server := single(t, t.TempDir(), 0)
	nc := connect(t, server.ClientURL())
	r := remadeOn(t, nc, false)
	r.Append("k", []byte("before"))
	backup := snapshot(t, nc, "ORDERS")
	r.Remake = func() {
		js := must(jetstream.New(nc))(t)
		noError(t, js.DeleteStream(ctx, "ORDERS"))
		must(server.GlobalAccount().RestoreStream(&natsserver.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}},
			bytes.NewReader(backup)))(t)
	}
	return r, nc
}

// snapshot returns a backup of a stream.
func snapshot(t testing.TB, nc *nats.Conn, stream string) (all []byte) {
	t.Helper()
	chunks := must(nc.SubscribeSync(nats.NewInbox()))(t)
	request := fmt.Appendf(nil, `{"deliver_subject": %q}`, chunks.Subject)
	must(nc.Request("$JS.API.STREAM.SNAPSHOT."+stream, request, time.Minute))(t)
	for {
		m := must(chunks.NextMsg(time.Minute))(t)
		if len(m.Data) == 0 {
			return all
		}
		all = append(all, m.Data...)
		if m.Reply != "" {
			noError(t, m.Respond(nil))
		}
	}
}

// remade is a group on a server of its own.
func remade(t testing.TB, inJournal bool) ownertest.Remade {
	t.Helper()
	return remadeOn(t, connect(t, single(t, t.TempDir(), 0).ClientURL()), inJournal)
}

func remadeOn(t testing.TB, nc *nats.Conn, inJournal bool) ownertest.Remade {
	t.Helper()
	js := must(jetstream.New(nc))(t)
	stream := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}
	must(js.CreateStream(ctx, stream))(t)
	return ownertest.Remade{
		Join: func() dispatch.Ownership {
			return must(leasenats.OpenGroup(ctx, leasenats.GroupConfig{
				Conn: nc, Stream: "ORDERS", Subject: "orders.*.>", Partitions: 1, Bucket: "group", Session: 500 * time.Millisecond,
				Domain:  func(r dispatch.Record) string { return strings.TrimPrefix(r.Domain, "orders.0.") },
				Ledger:  lease.Config{MaxRetries: 100},
				Journal: inJournal, OnError: func(error) {},
			}))(t)
		},
		Append: func(domain string, payload []byte) { must(js.Publish(ctx, "orders.0."+domain, payload))(t) },
		Remake: func() {
			noError(t, js.DeleteStream(ctx, "ORDERS"))
			must(js.CreateStream(ctx, stream))(t)
		},
		Mirror: func() {
			promoted := func(name, of string, subjects ...string) {
				m := must(js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Mirror: &jetstream.StreamSource{Name: of}}))(t)
				last := must(must(js.Stream(ctx, of))(t).Info(ctx))(t).State.LastSeq
				for must(m.Info(ctx))(t).State.LastSeq < last {
					time.Sleep(time.Millisecond) // a mirror tells nobody
				}
				noError(t, js.DeleteStream(ctx, of))
				must(js.UpdateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: subjects}))(t)
			}
			promoted("COPY", "ORDERS", "copy.>")
			promoted("ORDERS", "COPY", stream.Subjects...)
		},
		Adopt: func(ctx context.Context) error {
			all, err := leasenats.Bindings(ctx, nc, "group", "ORDERS")
			if err != nil {
				return err
			}
			if len(all) != 1 || all[0].Name != "group-0" || all[0].Of == all[0].Is || all[0].Bars != nil {
				return fmt.Errorf("found: %+v", all)
			}
			return all[0].Adopt(ctx)
		},
	}
}

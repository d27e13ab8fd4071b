// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// A domain can be filled up to the server's limit, and be processed afterwards.

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasenats"
)

// A record of Limit bytes is accepted, also in a bucket with a lower limit than the server's, and not one much larger.
func TestLimit(t *testing.T) {
	nc := connect(t, start(t, &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), MaxPayload: 8192,
	}).ClientURL())
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "less", MaxValueSize: 5000})
	}
	if err != nil {
		t.Fatal(err)
	}
	for bucket, most := range map[string]int{"all": 8192, "less": 5000} {
		store := openStore(t, leasenats.StoreConfig{Conn: nc, Bucket: bucket})
		for _, name := range []string{"A", strings.Repeat("long", 500)} {
			limit := store.Limit(name)
			if limit > most || limit < most-len(name)-200 {
				t.Errorf("%s: the limit is %d", bucket, limit)
			}
			version, err := store.Swap(ctx, name, 0, make([]byte, limit), durable.Held)
			if err != nil {
				t.Errorf("%s: %d bytes: %v", bucket, limit, err)
			}
			if _, err := store.Swap(ctx, name, version, make([]byte, limit+200), durable.Held); !errors.Is(err, durable.ErrNotApplied) {
				t.Errorf("%s: %d bytes: %v", bucket, limit+200, err)
			}
		}
	}
}

// On a server with a small limit, Offer says when a domain is full, and a later Ledger can process all that waits. Long names are
// part of the message.
func TestABacklogCanBeWorkedOff(t *testing.T) {
	s := start(t, &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), MaxPayload: 8192,
	})
	nc := connect(t, s.ClientURL())
	store := openStore(t, leasenats.StoreConfig{Conn: nc, Bucket: "small"})
	for _, domain := range []string{"A", strings.Repeat("long", 500)} {
		l := open(t, store, lease.Config{})
		offered := int64(0)
		for ; ; offered++ {
			if _, err := l.Offer(ctx, domain, offered<<32); err != nil {
				if !errors.Is(err, lease.ErrBacklogFull) {
					t.Errorf("Offer %d: %v", offered, err)
				}
				break
			}
		}
		if offered < 200 {
			t.Errorf("%d were taken", offered)
		}
		l = open(t, store, lease.Config{})
		for offset := range offered {
			a, err := l.AcquireNext(ctx, domain)
			if err != nil || a.Status != lease.Acquired || a.Lease.Offset != offset<<32 {
				t.Fatalf("after %d of %d: AcquireNext = %+v, %v", offset, offered, a, err)
			}
			if offset%2 == 0 {
				_, err = l.Succeed(ctx, domain, a.Lease.Token)
			} else {
				_, err = l.Fail(ctx, domain, a.Lease.Token)
			}
			if err != nil {
				t.Fatalf("after %d of %d: %v", offset, offered, err)
			}
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// The limit of a store is what its server takes.

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

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

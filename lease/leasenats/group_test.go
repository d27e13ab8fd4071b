// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// A group on a real server with a subject transform: what is refused, and what ends a membership.

import (
	"context"
	"errors"
	"fmt"
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

func groupConfig(nc *nats.Conn) leasenats.GroupConfig {
	return leasenats.GroupConfig{
		Conn: nc, Stream: "ORDERS", Subject: "orders.*.>", Partitions: parts, Bucket: "group", Session: time.Second,
		Domain: func(r dispatch.Record) string { return r.Domain[strings.LastIndex(r.Domain, ".")+1:] },
		Ledger: lease.Config{MaxRetries: 50},
	}
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
}

// A membership ends when the bucket is deleted or the caller closes the connection, and its partitions are lost.
func TestGroupEnds(t *testing.T) {
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	js := partitioned(t, nc)
	for what, end := range map[string]func(own *nats.Conn) error{
		"stream not found":  func(*nats.Conn) error { return js.DeleteKeyValue(ctx, "group") },
		"connection closed": func(own *nats.Conn) error { own.Close(); return nil },
	} {
		own := connect(t, nc.ConnectedUrl())
		g := must(leasenats.OpenGroup(ctx, groupConfig(own)))(t)
		ends := sync.OnceValue(func() error { return end(own) })
		err := g.Hold(ctx, func(ctx context.Context, p dispatch.Partition) {
			if err := ends(); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, dispatch.ErrLost) {
				t.Errorf("%s: %s ended by %v", what, p.Name, cause)
			}
		})
		if !is[*leasenats.UnreachableError](err) || !strings.Contains(err.Error(), what) ||
			errors.Is(err, jetstream.ErrStreamNotFound) != strings.Contains(err.Error(), "start all members again") {
			t.Errorf("%s: %v", what, err)
		}
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

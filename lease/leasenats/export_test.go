// SPDX-License-Identifier: Apache-2.0

package leasenats

// Unexported functions and types for the external tests.

import (
	"cmp"
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/journal"
)

// ListAgain sets after how many changes a List of s saves its listing.
func ListAgain(s durable.Store, changes int) durable.Store {
	s.(*store).listAgain = changes
	return s
}

// Listing returns the subject of the saved listing.
func Listing(s durable.Store) string { return s.(*store).listing }

// WithTimeout sets the timeout of each request.
func WithTimeout(cfg StoreConfig, timeout time.Duration) StoreConfig {
	cfg.timeout = timeout
	return cfg
}

type (
	Source           = source
	UnreachableError = unreachableError
)

// SourceConfig says which partition a source is, and over which connection it reads: as a Group does, or with Read another one.
type SourceConfig struct {
	Conn              *nats.Conn
	Read              func(context.Context) (*nats.Conn, error)
	Bytes             int // of a request; 0: the most
	Stream            string
	Subjects          []string
	Bucket, Partition string
	Domain            func(dispatch.Record) string
}

// OpenSource returns a source as a Group makes it, and creates its bucket.
func OpenSource(ctx context.Context, cfg SourceConfig) (*Source, error) {
	js, err := jetstream.New(cfg.Conn)
	if err != nil {
		return nil, err
	}
	kv, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: cfg.Bucket})
	if err != nil {
		return nil, err
	}
	if cfg.Read == nil {
		cfg.Read = steady(cfg.Conn)
	}
	of := sourceConfig{Conn: cfg.Read, Bytes: cmp.Or(cfg.Bytes, mostBytes), Stream: cfg.Stream, Subjects: cfg.Subjects, Bucket: cfg.Bucket,
		Partition: cfg.Partition, Domain: cfg.Domain, Timeout: 5 * time.Second}
	return newSource(of, js, kv), nil
}

// OpenJournal claims a ledger that is written per window.
func OpenJournal(ctx context.Context, cfg StoreConfig, name string, fresh time.Duration, of lease.Config) (*journal.Ledger, error) {
	cfg.Name = "journals"
	s, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	stream, err := openJournals(ctx, s, cfg)
	if err != nil {
		return nil, err
	}
	return journal.Open(ctx, journal.Config{Store: s.journal(stream, name, steady(cfg.Conn)), Name: name, Fresh: fresh, Ledger: of})
}

// Records returns what makes the connection for records beside conn, and what ends it.
func Records(conn *nats.Conn) (open func(context.Context) (*nats.Conn, error), end func()) {
	r := &records{of: conn, options: recordOptions(conn.Opts), turn: make(chan struct{}, 1)}
	return r.open, r.close
}

func steady(conn *nats.Conn) func(context.Context) (*nats.Conn, error) {
	return func(context.Context) (*nats.Conn, error) { return conn, nil }
}

// SPDX-License-Identifier: Apache-2.0

package leasenats

// Unexported functions and types for the external tests.

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
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
	SourceConfig     = sourceConfig
	UnreachableError = unreachableError
)

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
	cfg.Timeout = 5 * time.Second
	return newSource(cfg, js, kv), nil
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
	return journal.Open(ctx, journal.Config{Store: s.journal(stream, name), Name: name, Fresh: fresh, Ledger: of})
}

package leasenats

// This file opens List, and the source of a partition, to their tests.

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ListAgain makes s write down what a List found after so many changes.
func ListAgain(s *Store, changes int) *Store {
	s.listAgain = changes
	return s
}

// Listing is the subject of what a List writes down.
func Listing(s *Store) string { return s.listing }

type (
	Source       = source
	SourceConfig = sourceConfig
)

// OpenSource makes a source as a Group does, and its bucket.
func OpenSource(ctx context.Context, cfg SourceConfig) (*Source, error) {
	js, err := jetstream.New(cfg.Conn)
	if err != nil {
		return nil, err
	}
	kv, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: cfg.Bucket})
	if err != nil {
		return nil, err
	}
	if cfg.Domain == nil {
		cfg.Domain = jetstream.Msg.Subject
	}
	cfg.Timeout = 5 * time.Second
	return newSource(cfg, js, kv), nil
}

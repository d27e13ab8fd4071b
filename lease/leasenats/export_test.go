package leasenats

// This file opens List, and the source of a partition, to their tests.

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/durable"
)

// ListAgain makes s write down what a List found after so many changes.
func ListAgain(s durable.Store, changes int) durable.Store {
	s.(*store).listAgain = changes
	return s
}

// Listing is the subject of what a List writes down.
func Listing(s durable.Store) string { return s.(*store).listing }

// WithTimeout makes requests fail sooner or later than otherwise.
func WithTimeout(cfg StoreConfig, timeout time.Duration) StoreConfig {
	cfg.timeout = timeout
	return cfg
}

type (
	Source           = source
	SourceConfig     = sourceConfig
	UnreachableError = unreachableError
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
	cfg.Timeout = 5 * time.Second
	return newSource(cfg, js, kv), nil
}

package dispatch_test

// This file holds what New refuses, and what zero values mean.

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*dispatch.Config)
	}{
		{"Config.Ledger", func(cfg *dispatch.Config) { cfg.Ledger = nil }},
		{"Config.Source", func(cfg *dispatch.Config) { cfg.Source = nil }},
		{"Config.Handler", func(cfg *dispatch.Config) { cfg.Handler = nil }},
		{"Config.Ledger", func(cfg *dispatch.Config) { cfg.Ledger = (*lease.Memory)(nil) }},
		{"Config.Source", func(cfg *dispatch.Config) { cfg.Source = (*dispatch.Log)(nil) }},
		{"Config.Concurrency", func(cfg *dispatch.Config) { cfg.Concurrency = (*late)(nil) }},
		{"Config.Rate", func(cfg *dispatch.Config) { cfg.Rate = (*bucket)(nil) }},
		{"Config.Observer", func(cfg *dispatch.Config) { cfg.Observer = (*dispatch.Logger)(nil) }},
		{"Config.DeadLetter", func(cfg *dispatch.Config) { cfg.DeadLetter = nil }},
		{"Config.AttemptTimeout", func(cfg *dispatch.Config) { cfg.AttemptTimeout = -1 }},
		{"Config.MaxInFlight", func(cfg *dispatch.Config) { cfg.MaxInFlight = -1 }},
		{"Config.MaxBuffered", func(cfg *dispatch.Config) { cfg.MaxBuffered = -1 }},
		{"Config.MaxPerDomain", func(cfg *dispatch.Config) { cfg.MaxPerDomain = -1 }},
		{"Config.MaxPerDomain", func(cfg *dispatch.Config) { cfg.MaxBuffered, cfg.MaxPerDomain = 5, 6 }},
		{"Config.MaxPerOwner", func(cfg *dispatch.Config) { cfg.MaxPerOwner = 1 }},
		{"Config.MaxPerOwner", func(cfg *dispatch.Config) { cfg.Owner, cfg.MaxPerOwner = ownerOf, -1 }},
		{"Config.MaxPerOwner", func(cfg *dispatch.Config) { cfg.Owner, cfg.MaxBuffered, cfg.MaxPerOwner = ownerOf, 5, 6 }},
		{"Config.Backoff", func(cfg *dispatch.Config) { cfg.Backoff = -1 }},
		{"Config.Backoff", func(cfg *dispatch.Config) { cfg.Backoff = 366 * 24 * time.Hour }},
		{"Config.MaxBackoff", func(cfg *dispatch.Config) { cfg.MaxBackoff = -1 }},
		{"Config.MaxBackoff", func(cfg *dispatch.Config) { cfg.Backoff, cfg.MaxBackoff = 2, 1 }},
		{"Config.Jitter", func(cfg *dispatch.Config) { cfg.Jitter = -0.1 }},
		{"Config.Jitter", func(cfg *dispatch.Config) { cfg.Jitter = 1.1 }},
		{"Config.Jitter", func(cfg *dispatch.Config) { cfg.Jitter = math.NaN() }},
		{"Config.Grace", func(cfg *dispatch.Config) { cfg.Grace = -1 }},
		{"Config.DrainTimeout", func(cfg *dispatch.Config) { cfg.DrainTimeout = -1 }},
		{"Config.CommitEvery", func(cfg *dispatch.Config) { cfg.CommitEvery = -1 }},
	} {
		cfg := dispatch.Config{Ledger: memory(t, 0), Source: fill(), Handler: func(context.Context, dispatch.Job) error { return nil }, DeadLetter: dispatch.Discard}
		c.change(&cfg)
		d, err := dispatch.New(cfg)
		var invalid *lease.InvalidError
		if d != nil || !errors.As(err, &invalid) || !errors.Is(err, lease.ErrInvalid) || invalid.Field != "dispatch."+c.field {
			t.Errorf("%s: %v", c.field, err)
		}
	}
}

// What Run refuses is no run: the dispatcher is as good as new.
func TestRunRefuses(t *testing.T) {
	d, err := dispatch.New(dispatch.Config{Ledger: memory(t, 0), Source: fill(), Handler: func(context.Context, dispatch.Job) error { return nil }, DeadLetter: dispatch.Discard})
	if err != nil {
		t.Fatal(err)
	}
	var invalid *lease.InvalidError
	if err := d.Run(nil); !errors.As(err, &invalid) || invalid.Field != "dispatch.ctx" { //nolint:staticcheck // refused, not a panic
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Run(ctx); err != nil {
		t.Errorf("Run after one that was refused: %v", err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds what New refuses, and what zero values mean.

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(p *dispatch.Partition, cfg *dispatch.Config)
	}{
		{"Partition.Ledger", func(p *dispatch.Partition, _ *dispatch.Config) { p.Ledger = nil }},
		{"Partition.Source", func(p *dispatch.Partition, _ *dispatch.Config) { p.Source = nil }},
		{"Config.Handler", func(_ *dispatch.Partition, cfg *dispatch.Config) { cfg.Handler = nil }},
		{"Partition.Ledger", func(p *dispatch.Partition, _ *dispatch.Config) { p.Ledger = (*process)(nil) }},
		{"Partition.Source", func(p *dispatch.Partition, _ *dispatch.Config) { p.Source = (*dispatch.Log)(nil) }},
		{"Partition.Open", func(p *dispatch.Partition, _ *dispatch.Config) {
			p.Open = func(context.Context) (dispatch.Source, lease.Ledger, error) { return nil, nil, nil }
		}},
		{"Config.Rate", func(_ *dispatch.Partition, cfg *dispatch.Config) { cfg.Rate = (*bucket)(nil) }},
		{"Config.Observer", func(_ *dispatch.Partition, cfg *dispatch.Config) { cfg.Observer = (*events)(nil) }},
		{"Config.DeadLetter", func(_ *dispatch.Partition, cfg *dispatch.Config) { cfg.DeadLetter = nil }},
		{"Config.AttemptTimeout", func(_ *dispatch.Partition, cfg *dispatch.Config) { cfg.AttemptTimeout = -1 }},
		{"Config.MaxInFlight", func(_ *dispatch.Partition, cfg *dispatch.Config) { cfg.MaxInFlight = -1 }},
		{"Config.MaxBuffered", func(_ *dispatch.Partition, cfg *dispatch.Config) { cfg.MaxBuffered = -1 }},
		{"Config.MaxPerDomain", func(_ *dispatch.Partition, cfg *dispatch.Config) { cfg.MaxPerDomain = -1 }},
		{"Config.MaxPerDomain", func(_ *dispatch.Partition, cfg *dispatch.Config) { cfg.MaxBuffered, cfg.MaxPerDomain = 5, 6 }},
		{"Config.MaxPerOwner", func(_ *dispatch.Partition, cfg *dispatch.Config) { cfg.MaxPerOwner = 1 }},
		{"Config.MaxPerOwner", func(_ *dispatch.Partition, cfg *dispatch.Config) { cfg.Owner, cfg.MaxPerOwner = ownerOf, -1 }},
		{"Config.MaxPerOwner", func(_ *dispatch.Partition, cfg *dispatch.Config) {
			cfg.Owner, cfg.MaxBuffered, cfg.MaxPerOwner = ownerOf, 5, 6
		}},
		{"Config.Backoff", func(_ *dispatch.Partition, cfg *dispatch.Config) { cfg.Backoff = -1 }},
		{"Config.Backoff", func(_ *dispatch.Partition, cfg *dispatch.Config) { cfg.Backoff = 366 * 24 * time.Hour }},
		{"Config.MaxBackoff", func(_ *dispatch.Partition, cfg *dispatch.Config) { cfg.MaxBackoff = -1 }},
		{"Config.MaxBackoff", func(_ *dispatch.Partition, cfg *dispatch.Config) { cfg.Backoff, cfg.MaxBackoff = 2, 1 }},
		{"Config.Grace", func(_ *dispatch.Partition, cfg *dispatch.Config) { cfg.Grace = -1 }},
		{"Config.DrainTimeout", func(_ *dispatch.Partition, cfg *dispatch.Config) { cfg.DrainTimeout = -1 }},
		{"Config.CommitEvery", func(_ *dispatch.Partition, cfg *dispatch.Config) { cfg.CommitEvery = -1 }},
	} {
		p := dispatch.Partition{Ledger: memory(t, 0), Source: fill()}
		cfg := dispatch.Config{
			Handler: func(context.Context, dispatch.Job) error { return nil }, DeadLetter: dispatch.Discard,
		}
		c.change(&p, &cfg)
		d, err := dispatch.New(p, cfg)
		var invalid *lease.InvalidError
		if d != nil || !errors.As(err, &invalid) || !errors.Is(err, lease.ErrInvalid) || invalid.Field != "dispatch."+c.field {
			t.Errorf("%s: %v", c.field, err)
		}
	}
}

// What Run refuses is no run: the dispatcher is as good as new.
func TestRunRefuses(t *testing.T) {
	d, err := dispatch.New(dispatch.Partition{Ledger: memory(t, 0), Source: fill()}, dispatch.Config{
		Handler: func(context.Context, dispatch.Job) error { return nil }, DeadLetter: dispatch.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "ctx", d.Run(nil)) //nolint:staticcheck // refused, not a panic
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Run(ctx); err != nil {
		t.Errorf("Run after one that was refused: %v", err)
	}
}

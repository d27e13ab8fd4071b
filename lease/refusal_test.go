// SPDX-License-Identifier: Apache-2.0

// What a ledger refuses: with which error, and without a change.

package lease_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stopbank/stopbank/lease"
)

func TestConfigIsValidated(t *testing.T) {
	tooMany := math.MaxInt32
	tooMany++ // where an int has 32 bits this is negative, and refused as well
	for _, c := range []struct {
		cfg   lease.Config
		field string
	}{
		{lease.Config{MaxRetries: -1}, "Config.MaxRetries"},
		{lease.Config{MaxRetries: math.MinInt}, "Config.MaxRetries"},
		{lease.Config{MaxRetries: tooMany}, "Config.MaxRetries"},
		{lease.Config{MaxBacklog: -1}, "Config.MaxBacklog"},
		{lease.Config{Observer: observer(nil)}, "Config.Observer"},
	} {
		m, err := lease.NewMemory(c.cfg)
		var invalid *lease.InvalidError
		if m != nil || !errors.As(err, &invalid) || invalid.Field != c.field || !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%+v: %v, %v", c.cfg, m, err)
		}
	}
}

// What no state has to be read for, and that a question makes no domain. The suite (TestMemory) has the other errors.
func TestBadInput(t *testing.T) {
	m := open(t, lease.Config{})
	held := acquire(t, m, "A", 10)
	dead, cancel := context.WithCancel(ctx)
	cancel()
	for name, call := range map[string]func(context.Context, string) error{
		"TryAcquire":  func(ctx context.Context, d string) error { _, err := m.TryAcquire(ctx, d, 12); return err },
		"Offer":       func(ctx context.Context, d string) error { _, err := m.Offer(ctx, d, 12); return err },
		"AcquireNext": func(ctx context.Context, d string) error { _, err := m.AcquireNext(ctx, d); return err },
		"Succeed":     func(ctx context.Context, d string) error { _, err := m.Succeed(ctx, d, held.Token); return err },
		"Fail":        func(ctx context.Context, d string) error { _, err := m.Fail(ctx, d, held.Token); return err },
		"GiveUp":      func(ctx context.Context, d string) error { _, err := m.GiveUp(ctx, d, held.Token); return err },
		"Reclaim":     func(ctx context.Context, d string) error { _, err := m.Reclaim(ctx, d, held.Token); return err },
		"Release":     func(ctx context.Context, d string) error { return m.Release(ctx, d, held.Token) },
		"Inspect":     func(ctx context.Context, d string) error { _, err := m.Inspect(ctx, d); return err },
	} {
		var invalid *lease.InvalidError
		if err := call(ctx, ""); !errors.As(err, &invalid) || invalid.Field != "domain" {
			t.Errorf("%s of no domain: %v", name, err)
		}
		if err := call(ctx, string(make([]byte, 1<<16))); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "65536") {
			t.Errorf("%s of a huge domain: %v", name, err)
		}
		if err := call(dead, "A"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a done context: %v", name, err)
		}
		if err := call(nil, "A"); !errors.As(err, &invalid) || invalid.Field != "ctx" {
			t.Errorf("%s with a nil context: %v", name, err)
		}
	}
	if err := m.Compact(nil, 6); !errors.Is(err, lease.ErrInvalid) { //nolint:staticcheck // the same
		t.Errorf("Compact with a nil context: %v", err)
	}
	var walked error
	for _, walked = range m.Held(nil) { //nolint:staticcheck // the same
	}
	if !errors.Is(walked, lease.ErrInvalid) {
		t.Errorf("Held with a nil context: %v", walked)
	}
	if _, err := m.Reclaim(ctx, "C", 0); !errors.Is(err, lease.ErrLeaseNotFound) {
		t.Errorf("unknown domain: %v", err)
	}
	if n := m.Domains(); n != 1 {
		t.Errorf("%d domains, want 1: a question has made one", n)
	}
}

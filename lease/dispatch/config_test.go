package dispatch_test

// This file holds what New refuses, what zero values mean, and the schedule of the retries as a formula.

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

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
		{"Config.MaxInFlight", func(cfg *dispatch.Config) { cfg.MaxInFlight = -1 }},
		{"Config.MaxBuffered", func(cfg *dispatch.Config) { cfg.MaxBuffered = -1 }},
		{"Config.MaxPerDomain", func(cfg *dispatch.Config) { cfg.MaxPerDomain = -1 }},
		{"Config.MaxPerDomain", func(cfg *dispatch.Config) { cfg.MaxBuffered, cfg.MaxPerDomain = 5, 6 }},
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
		cfg := dispatch.Config{Ledger: memory(t, 0), Source: fill(), Handler: func(context.Context, dispatch.Job) error { return nil }}
		c.change(&cfg)
		d, err := dispatch.New(cfg)
		var invalid *dispatch.InvalidError
		if d != nil || !errors.As(err, &invalid) || !errors.Is(err, dispatch.ErrInvalid) || invalid.Field != c.field {
			t.Errorf("%s: %v", c.field, err)
		}
	}
}

// What Run refuses is no run: the dispatcher is as good as new.
func TestRunRefuses(t *testing.T) {
	d, err := dispatch.New(dispatch.Config{Ledger: memory(t, 0), Source: fill(), Handler: func(context.Context, dispatch.Job) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	for field, err := range map[string]error{
		"ctx":        d.Run(nil), //nolint:staticcheck // refused, not a panic
		"Dispatcher": new(dispatch.Dispatcher).Run(t.Context()),
	} {
		var invalid *dispatch.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Run(ctx); err != nil {
		t.Errorf("Run after one that was refused: %v", err)
	}
}

func TestPropertySchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := dispatch.Config{
			Backoff: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "backoff")),
			Jitter:  rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		cfg.MaxBackoff = cfg.Backoff + time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "more"))
		u := rapid.Float64Range(0, 0.999).Draw(t, "u")
		n := rapid.IntRange(1, 200).Draw(t, "n")
		acquired := time.Unix(1e9, 0)
		failed := acquired.Add(time.Duration(rapid.Int64Range(-int64(time.Hour), int64(100*time.Hour)).Draw(t, "elapsed")))

		d := func(i int) float64 {
			return min(float64(cfg.MaxBackoff), float64(cfg.Backoff)*math.Pow(2, float64(i-1)))
		}
		want := -u * cfg.Jitter * d(n)
		for i := 1; i <= n; i++ {
			want += d(i)
		}
		since := float64(failed.Sub(acquired))
		want = min(max(want, since+d(1)*(1-u*cfg.Jitter)), since+d(n)*(1-u*cfg.Jitter))

		got := float64(dispatch.Due(cfg, acquired, failed, n, u).Sub(acquired))
		if math.Abs(got-want) > 10+1e-9*math.Abs(want) {
			t.Fatalf("due after %v, want %v", time.Duration(got), time.Duration(want))
		}
	})
}

// The number of retries has no bound that a sum could overflow or take long for.
func TestScheduleOfManyRetries(t *testing.T) {
	cfg := dispatch.Config{Backoff: 1, MaxBackoff: 300 * 24 * time.Hour, Jitter: 1}
	now := time.Unix(1e9, 0)
	for _, n := range []int{1, 100, math.MaxInt32} {
		if got := dispatch.Due(cfg, now, now, n, 0).Sub(now); got <= 0 || got > cfg.MaxBackoff {
			t.Errorf("retry %d after %v", n, got)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

// A scrape exports the values of its sources.

package wardenprom_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

// everything is a registry in which each metric has a value.
func everything(t testing.TB) *prometheus.Registry {
	t.Helper()
	p := &parts{
		sample: monitor.Sample{
			Utilization: monitor.Reading{Value: .75, OK: true}, Throttled: monitor.Reading{Value: .25, OK: true},
			Runnable: monitor.Reading{Value: 3, OK: true}, Share: monitor.Reading{Value: .5, OK: true},
			Memory: monitor.Memory{Limit: 1 << 30, Live: 1 << 20},
			Lag:    monitor.Lag{P50: time.Millisecond, P90: 2 * time.Millisecond, P99: 3 * time.Millisecond, Count: 9},
			Pools: []monitor.PoolReading{
				{Name: "orders-db", PoolStats: monitor.PoolStats{InUse: 7, Max: 10, Waiting: monitor.Reading{Value: 4, OK: true}}},
				{Name: "cache", Problem: "blocked"},
			},
		},
		decision: decision.ControlDecision{
			Seq: 5, At: time.Unix(1000, 5e8), TargetConcurrency: 12, ShedProbability: .125, ValidFor: 2 * time.Second,
			Expected: 8 * time.Millisecond,
			Reasons: []decision.Reason{decision.NewReason("queueing", "lag", 1, decision.Tighten),
				decision.NewReason("memory", "memory_bytes_per_task", 1, decision.Tighten)},
		},
	}
	w := newWarden(t, p, nil)
	sampled(w, 1)

	prices := must(wardenprom.NewEvents("prices"))(t)
	l := newLimiter(t, 1, prices.Limiter())
	first := must(l.TryAcquire(limiter.Task{}))(t)
	held := must(newLimiter(t, 1, nil).TryAcquire(limiter.Task{}))(t)
	held.Release()
	_, _ = l.TryAcquire(limiter.Task{})
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = l.Acquire(gone, limiter.Task{})
	first.Abandon()
	must(l.TryAcquire(limiter.Task{Priority: decision.High}))(t).Fail()
	must(l.TryAcquire(limiter.Task{}))(t)

	rehearsal := newLimiter(t, 0, nil)
	noError(t, rehearsal.SetMode(decision.DryRun))
	must(rehearsal.TryAcquire(limiter.Task{}))(t).Release()

	shop := must(wardenprom.NewEvents("shop"))(t)
	set := must(bulkhead.New(bulkhead.Config{Total: 10, Observer: shop.Bulkhead(), Compartments: []bulkhead.CompartmentConfig{
		{Name: "checkout", Guaranteed: 4, Lendable: 1, MaxQueue: 3, Max: 5, Criticality: decision.Critical},
		{Name: "api", Guaranteed: 2, MaxQueue: 1, Tenants: bulkhead.TenantsConfig{Max: 1}},
		{Name: "slow", Guaranteed: 1, MaxQueue: 1, MaxWait: time.Millisecond},
		{Name: "rehearsal", Guaranteed: 1, Mode: decision.DryRun},
	}}))(t)
	for range 3 {
		_, _ = bulkhead.Do(t.Context(), set.Compartment("checkout"), func(context.Context) (int, error) { return 1, nil })
	}
	_, _ = bulkhead.Do(t.Context(), set.Compartment("checkout"), func(ctx context.Context) (int, error) {
		return bulkhead.Do(ctx, set.Compartment("checkout"), func(context.Context) (int, error) { return 1, nil })
	})
	_, _, _ = set.Compartment("checkout").Acquire(t.Context())
	slow := set.Compartment("slow")
	_, _, _ = slow.Acquire(t.Context())
	for range 2 {
		_, _, _ = slow.Acquire(t.Context())
		_, _, _ = set.Compartment("rehearsal").Acquire(t.Context())
	}
	_, _ = bulkhead.Do(t.Context(), set.Compartment("api").Tenant("a\n\"tenant\""),
		func(context.Context) (int, error) { return 1, nil })

	orders := must(wardenprom.NewEvents("orders"))(t)
	ledger := newLedger(t, orders.Ledger())
	must(ledger.TryAcquire(t.Context(), "a", 2))(t)
	must(ledger.TryAcquire(t.Context(), "b", 1))(t)
	must(ledger.Offer(t.Context(), "c", 1))(t)
	gate := must(admission.New(admission.Config{Limit: 2}))(t)
	must(gate.TryAcquire())(t).Release()
	for range 3 {
		_, _ = gate.TryAcquire()
	}
	gate.Close()
	for range 3 {
		_, _ = gate.TryAcquire()
	}

	c := must(wardenprom.New(wardenprom.Config{
		Wardens:  map[string]*warden.Warden{"api": w},
		Limiters: map[string]*limiter.Limiter{"prices": l, "rehearsal": rehearsal},
		Sets:     map[string]*bulkhead.Set{"shop": set},
		Gates:    map[string]*admission.Gate{"login": gate},
		Ledgers:  map[string]lease.Ledger{"orders": ledger},
		Dispatchers: map[string]func() []dispatch.Stats{"orders": func() []dispatch.Stats {
			return []dispatch.Stats{{
				Name: "orders-3", Held: true, Working: 1, Ready: 2, Pausing: 3, Waiting: 4, Fenced: 5, Suspects: 18, Paced: 22,
				Buffered: 6, Oldest: 7 * time.Second, Paused: true, Stalled: "working",
				Succeeded: 8, Skipped: 9, GaveUp: 60, Permanent: 20, Died: 30, DeadLettered: 11, DeadLetterFailed: 19, Retried: 12,
				Postponed: 21, Reclaimed: 13, Lost: 14, ObserverPanics: 15, Floor: 16, Committed: 17, Lag: 0,
			}, {Name: "orders-4", Lag: -1}}
		}},
		Partitions: map[string]int{"orders": 8},
	}))(t)
	return registered(t, c, prices, shop, orders)
}

// scrapeFile has each series of everything with its value.
const scrapeFile = "testdata/scrape.golden"

// What is measured by the real clock is only known to be more than 0.
var measured = regexp.MustCompile(`^stopbank_\w+_oldest_(running|held)_seconds`)

// TestAScrapeShowsWhatIs: the series that a scrape has, and their values. With -update it writes them.
func TestAScrapeShowsWhatIs(t *testing.T) {
	r := everything(t)
	scrape(t, r) // what runs ages from the first look on
	values := scrape(t, r).values
	var b strings.Builder
	for _, series := range slices.Sorted(maps.Keys(values)) {
		switch v := values[series]; {
		case strings.HasSuffix(series, " sum"): // TestTimesGoWhereTheyBelong
		case v > 0 && measured.MatchString(series):
			fmt.Fprintln(&b, series, "more than 0")
		default:
			fmt.Fprintln(&b, series, v)
		}
	}
	got := b.String()
	if *update {
		noError(t, os.WriteFile(scrapeFile, []byte(got), 0o644))
	}
	want := text(t, scrapeFile)
	for line := range strings.Lines(got + want) {
		if strings.Contains(got, line) != strings.Contains(want, line) {
			t.Errorf("scraped: %v, in %s: %v: %s", strings.Contains(got, line), scrapeFile, strings.Contains(want, line), line)
		}
	}
}

// TestLint: names, units, types and help are as Prometheus wants them.
func TestLint(t *testing.T) {
	problems := must(testutil.GatherAndLint(everything(t)))(t)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// brokenLedger cannot be read.
type brokenLedger struct{ lease.Ledger }

func (brokenLedger) Held(context.Context) iter.Seq2[lease.Lease, error] {
	return func(yield func(lease.Lease, error) bool) { yield(lease.Lease{}, errors.New("no ledger")) }
}

// TestWhatIsUnknownIsMissing: 0 would be a value.
func TestWhatIsUnknownIsMissing(t *testing.T) {
	w := newWarden(t, &parts{decision: decision.ControlDecision{Seq: 1, TargetConcurrency: 1}}, nil)
	c := must(wardenprom.New(wardenprom.Config{
		Wardens: map[string]*warden.Warden{"w": w},
		Ledgers: map[string]lease.Ledger{"l": brokenLedger{}},
		Dispatchers: map[string]func() []dispatch.Stats{"d": func() []dispatch.Stats {
			return []dispatch.Stats{{Name: "taken", Held: true, Lag: -1}, {Name: "not yet", Lag: 5}}
		}},
	}))(t)
	r := registered(t, c)
	absent := func(parts ...string) {
		t.Helper()
		p := scrape(t, r)
		for name := range p.families {
			for _, part := range parts {
				if strings.Contains(name, part) {
					t.Errorf("%s is there", name)
				}
			}
		}
	}
	absent("_control_", "_monitor_", "_lease_", "_lag_offsets")
	sampled(w, 1)
	absent("_monitor_", "_lease_", "_lag_offsets")
	if _, there := scrape(t, r).values[`stopbank_dispatch_floor_offset{dispatcher="d",partition="not yet"}`]; there {
		t.Error("a partition has a floor before it is taken")
	}
	scrape(t, r).want(t, map[string]float64{
		`stopbank_dispatch_floor_offset{dispatcher="d",partition="taken"}`: 0,
		`stopbank_dispatch_partitions_held{dispatcher="d"}`:                1,
		`stopbank_control_target{warden="w"}`:                              1,
		`stopbank_scrape_failures_total{source="ledger/l"}`:                4,
	})
}

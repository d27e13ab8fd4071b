// SPDX-License-Identifier: Apache-2.0

// A scrape exports the values of its sources, over HTTP.

package wardenprom_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
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
	w.SampleIfDue() // the first sample is due a moment after New, or now
	for w.Stats().Samples == 0 {
		time.Sleep(time.Millisecond) // no event says when one is due
		w.SampleIfDue()
	}

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
	if err := rehearsal.SetMode(decision.DryRun); err != nil {
		t.Fatal(err)
	}
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

func TestAScrapeShowsWhatIs(t *testing.T) {
	p := scrape(t, everything(t))
	p.want(t, map[string]float64{
		`stopbank_warden_samples_total{taken_by="request",warden="api"}`:        1,
		`stopbank_warden_samples_total{taken_by="ticker",warden="api"}`:         0,
		`stopbank_warden_late_samples_total{warden="api"}`:                      0,
		`stopbank_warden_panics_total{warden="api"}`:                            0,
		`stopbank_warden_reentries_total{warden="api"}`:                         0,
		`stopbank_control_decisions_total{warden="api"}`:                        5,
		`stopbank_control_decision_timestamp_seconds{warden="api"}`:             1000.5,
		`stopbank_control_decision_valid_seconds{warden="api"}`:                 2,
		`stopbank_control_target{warden="api"}`:                                 12,
		`stopbank_control_shed_ratio{warden="api"}`:                             .125,
		`stopbank_control_expected_execution_seconds{warden="api"}`:             .008,
		`stopbank_control_reason{reason="queueing",warden="api"}`:               1,
		`stopbank_control_reason{reason="memory",warden="api"}`:                 1,
		`stopbank_monitor_utilization_ratio{warden="api"}`:                      .75,
		`stopbank_monitor_throttled_ratio{warden="api"}`:                        .25,
		`stopbank_monitor_processor_share_ratio{warden="api"}`:                  .5,
		`stopbank_monitor_memory_limit_bytes{warden="api"}`:                     1 << 30,
		`stopbank_monitor_memory_live_bytes{warden="api"}`:                      1 << 20,
		`stopbank_monitor_runnable_per_processor{warden="api"}`:                 3,
		`stopbank_monitor_lag_seconds{warden="api"}`:                            .002,
		`stopbank_limiter_target{limiter="api"}`:                                12,
		`stopbank_pool_in_use{pool="orders-db",warden="api"}`:                   7,
		`stopbank_pool_max{pool="orders-db",warden="api"}`:                      10,
		`stopbank_pool_waiting{pool="orders-db",warden="api"}`:                  4,
		`stopbank_pool_unreadable{pool="cache",problem="blocked",warden="api"}`: 1,

		`stopbank_limiter_running{limiter="prices",priority="normal"}`:                                        1,
		`stopbank_limiter_queued{limiter="prices",priority="normal"}`:                                         0,
		`stopbank_limiter_target{limiter="prices"}`:                                                           1,
		`stopbank_limiter_submitted_total{limiter="prices",priority="normal"}`:                                4,
		`stopbank_limiter_executed_total{limiter="prices",priority="normal"}`:                                 1,
		`stopbank_limiter_canceled_total{limiter="prices",priority="normal"}`:                                 1,
		`stopbank_limiter_abandoned_total{limiter="prices",priority="normal"}`:                                1,
		`stopbank_limiter_abandoned_total{limiter="prices",priority="critical"}`:                              0,
		`stopbank_limiter_failed_total{limiter="prices",priority="high"}`:                                     1,
		`stopbank_limiter_failed_total{limiter="prices",priority="normal"}`:                                   0,
		`stopbank_limiter_response_seconds{limiter="prices",outcome="failed",priority="high"} count`:          1,
		`stopbank_limiter_oldest_running_seconds{limiter="rehearsal"}`:                                        0,
		`stopbank_limiter_rejected_total{limiter="prices",priority="normal",reason="no_slot"}`:                1,
		`stopbank_limiter_rejected_total{limiter="prices",priority="normal",reason="queue_overflow"}`:         0,
		`stopbank_limiter_rejected_total{limiter="prices",priority="normal",reason="pressure_high"}`:          0,
		`stopbank_limiter_rejected_total{limiter="prices",priority="normal",reason="probabilistic_shedding"}`: 0,
		`stopbank_limiter_rejected_total{limiter="prices",priority="normal",reason="priority_drop"}`:          0,
		`stopbank_limiter_rejected_total{limiter="prices",priority="normal",reason="deadline_exceeded"}`:      0,
		`stopbank_limiter_rejected_total{limiter="prices",priority="normal",reason="closed"}`:                 0,
		`stopbank_limiter_submitted_total{limiter="prices",priority="critical"}`:                              0,
		`stopbank_limiter_decision_stale{limiter="prices"}`:                                                   0,
		`stopbank_limiter_mode{limiter="prices",mode="enforce"}`:                                              1,
		`stopbank_limiter_mode{limiter="prices",mode="dry_run"}`:                                              0,
		`stopbank_limiter_mode{limiter="prices",mode="bypass"}`:                                               0,
		`stopbank_limiter_mode{limiter="rehearsal",mode="enforce"}`:                                           0,
		`stopbank_limiter_mode{limiter="rehearsal",mode="dry_run"}`:                                           1,
		`stopbank_limiter_would_reject_total{limiter="rehearsal",priority="normal",reason="pressure_high"}`:   1,
		`stopbank_limiter_would_reject_total{limiter="rehearsal",priority="high",reason="pressure_high"}`:     0,
		`stopbank_limiter_rejected_total{limiter="rehearsal",priority="normal",reason="pressure_high"}`:       0,
		`stopbank_limiter_observer_panics_total{limiter="prices"}`:                                            0,
		`stopbank_limiter_wait_seconds{limiter="prices",outcome="started",priority="normal"} count`:           2,
		`stopbank_limiter_wait_seconds{limiter="prices",outcome="rejected",priority="normal"} count`:          1,
		`stopbank_limiter_wait_seconds{limiter="prices",outcome="canceled",priority="normal"} count`:          1,
		`stopbank_limiter_execution_seconds{limiter="prices"} count`:                                          2,
		`stopbank_limiter_response_seconds{limiter="prices",outcome="abandoned",priority="normal"} count`:     1,
		`stopbank_limiter_response_seconds{limiter="prices",outcome="executed",priority="normal"} count`:      0,
		`stopbank_limiter_response_seconds{limiter="prices",outcome="rejected",priority="normal"} count`:      1,
		`stopbank_limiter_response_seconds{limiter="prices",outcome="canceled",priority="normal"} count`:      1,
		`stopbank_limiter_response_seconds{limiter="prices",outcome="executed",priority="critical"} count`:    0,

		`stopbank_bulkhead_slots{set="shop"}`:                                                                 10,
		`stopbank_bulkhead_effective_slots{set="shop"}`:                                                       10,
		`stopbank_bulkhead_in_flight{set="shop"}`:                                                             4,
		`stopbank_bulkhead_plan_revision{set="shop"}`:                                                         1,
		`stopbank_bulkhead_decision_stale{set="shop"}`:                                                        0,
		`stopbank_compartment_mode{compartment="checkout",mode="enforce",set="shop"}`:                         1,
		`stopbank_compartment_mode{compartment="checkout",mode="bypass",set="shop"}`:                          0,
		`stopbank_compartment_without_slot{compartment="checkout",set="shop"}`:                                0,
		`stopbank_compartment_would_reject_total{compartment="rehearsal",reason="queue_overflow",set="shop"}`: 1,
		`stopbank_compartment_without_slot{compartment="rehearsal",set="shop"}`:                               1,
		`stopbank_compartment_in_flight{compartment="checkout",set="shop"}`:                                   1,
		`stopbank_compartment_queue_limit{compartment="checkout",set="shop"}`:                                 3,
		`stopbank_compartment_guaranteed{compartment="checkout",set="shop"}`:                                  4,
		`stopbank_compartment_lendable{compartment="checkout",set="shop"}`:                                    1,
		`stopbank_compartment_limit{compartment="checkout",set="shop"}`:                                       5,
		`stopbank_compartment_criticality{compartment="checkout",set="shop"}`:                                 127,
		`stopbank_compartment_submitted_total{compartment="checkout",set="shop"}`:                             6,
		`stopbank_compartment_admitted_total{compartment="checkout",set="shop"}`:                              5,
		`stopbank_compartment_finished_total{compartment="checkout",set="shop"}`:                              4,
		`stopbank_compartment_rejected_total{compartment="checkout",reason="reentry",set="shop"}`:             1,
		`stopbank_compartment_answered_total{compartment="checkout",outcome="succeeded",set="shop"}`:          3,
		`stopbank_compartment_answered_total{compartment="checkout",outcome="failed",set="shop"}`:             1,
		`stopbank_compartment_answered_total{compartment="checkout",outcome="panicked",set="shop"}`:           0,
		`stopbank_compartment_left_total{compartment="checkout",reason="closed",set="shop"}`:                  0,
		`stopbank_compartment_left_total{compartment="slow",reason="timeout_queued",set="shop"}`:              2,
		`stopbank_compartment_tenants{compartment="api",set="shop"}`:                                          1,
		`stopbank_compartment_wait_seconds{compartment="checkout",set="shop"} count`:                          5,
		`stopbank_compartment_execution_seconds{compartment="checkout",set="shop"} count`:                     4,

		`stopbank_admission_limit{gate="login"}`:                             2,
		`stopbank_admission_in_flight{gate="login"}`:                         2,
		`stopbank_admission_admitted_total{gate="login"}`:                    3,
		`stopbank_admission_released_total{gate="login"}`:                    1,
		`stopbank_admission_rejected_total{gate="login",reason="saturated"}`: 1,
		`stopbank_admission_rejected_total{gate="login",reason="closed"}`:    3,

		`stopbank_lease_held{ledger="orders"}`:                                                      2,
		`stopbank_lease_ready{ledger="orders"}`:                                                     1,
		`stopbank_lease_decisions_total{ledger="orders",operation="try_acquire",result="acquired"}`: 2,
		`stopbank_lease_decisions_total{ledger="orders",operation="try_acquire",result="enqueued"}`: 1,

		`stopbank_dispatch_partitions{dispatcher="orders"}`:      8,
		`stopbank_dispatch_partitions_held{dispatcher="orders"}`: 1,

		`stopbank_dispatch_domains{dispatcher="orders",partition="orders-3",state="working"}`:          1,
		`stopbank_dispatch_domains{dispatcher="orders",partition="orders-3",state="ready"}`:            2,
		`stopbank_dispatch_domains{dispatcher="orders",partition="orders-3",state="pausing"}`:          3,
		`stopbank_dispatch_domains{dispatcher="orders",partition="orders-3",state="waiting"}`:          4,
		`stopbank_dispatch_domains{dispatcher="orders",partition="orders-3",state="fenced"}`:           5,
		`stopbank_dispatch_suspects{dispatcher="orders",partition="orders-3"}`:                         18,
		`stopbank_dispatch_paced{dispatcher="orders",partition="orders-3"}`:                            22,
		`stopbank_dispatch_buffered{dispatcher="orders",partition="orders-3"}`:                         6,
		`stopbank_dispatch_oldest_buffered_seconds{dispatcher="orders",partition="orders-3"}`:          7,
		`stopbank_dispatch_paused{dispatcher="orders",partition="orders-3"}`:                           1,
		`stopbank_dispatch_stalled{dispatcher="orders",partition="orders-3",reason="working"}`:         1,
		`stopbank_dispatch_records_total{dispatcher="orders",partition="orders-3",result="succeeded"}`: 8,
		`stopbank_dispatch_records_total{dispatcher="orders",partition="orders-3",result="skipped"}`:   9,
		`stopbank_dispatch_dead_letters_total{dispatcher="orders",partition="orders-3"}`:               11,
		`stopbank_dispatch_dead_letter_failures_total{dispatcher="orders",partition="orders-3"}`:       19,
		`stopbank_dispatch_retries_total{dispatcher="orders",partition="orders-3"}`:                    12,
		`stopbank_dispatch_postponed_total{dispatcher="orders",partition="orders-3"}`:                  21,
		`stopbank_dispatch_reclaimed_total{dispatcher="orders",partition="orders-3"}`:                  13,
		`stopbank_dispatch_lost_total{dispatcher="orders",partition="orders-3"}`:                       14,
		`stopbank_dispatch_observer_panics_total{dispatcher="orders",partition="orders-3"}`:            15,
		`stopbank_dispatch_floor_offset{dispatcher="orders",partition="orders-3"}`:                     16,
		`stopbank_dispatch_committed_offset{dispatcher="orders",partition="orders-3"}`:                 17,
		`stopbank_dispatch_lag_offsets{dispatcher="orders",partition="orders-3"}`:                      0,
		`stopbank_dispatch_given_up_total{cause="retries",dispatcher="orders",partition="orders-3"}`:   10,
		`stopbank_dispatch_given_up_total{cause="permanent",dispatcher="orders",partition="orders-3"}`: 20,
		`stopbank_dispatch_given_up_total{cause="died",dispatcher="orders",partition="orders-3"}`:      30,

		`stopbank_dispatch_paused{dispatcher="orders",partition="orders-4"}`: 0,
		`stopbank_scrape_failures_total{source="warden/api"}`:                0,
		`stopbank_scrape_failures_total{source="dispatcher/orders"}`:         0,
	})
	if age := p.values[`stopbank_lease_oldest_held_seconds{ledger="orders"}`]; !(age > 0) {
		t.Errorf("the oldest lease is %v seconds old", age)
	}
	if strings.Contains(p.text, "tenant\\\"") {
		t.Error("the key of a tenant is shown")
	}
	if _, there := p.values[`stopbank_limiter_rejected_total{limiter="prices",priority="normal",reason="canceled"}`]; there {
		t.Error("a canceled task is counted as rejected")
	}
	if age := p.values[`stopbank_limiter_oldest_running_seconds{limiter="prices"}`]; !(age > 0) {
		t.Errorf("the oldest task has run for %v seconds", age)
	}
}

// The oldest function of a compartment ages from one scrape to the next.
func TestTheOldestFunctionAges(t *testing.T) {
	set := must(bulkhead.New(bulkhead.Config{Total: 1, Compartments: []bulkhead.CompartmentConfig{{Name: "a", Guaranteed: 1}}}))(t)
	r := registered(t, must(wardenprom.New(wardenprom.Config{Sets: map[string]*bulkhead.Set{"shop": set}}))(t))
	oldest := func() float64 {
		v, there := scrape(t, r).values[`stopbank_compartment_oldest_running_seconds{compartment="a",set="shop"}`]
		if !there {
			t.Error("it is not there")
		}
		return v
	}
	if v := oldest(); v != 0 {
		t.Errorf("%v seconds, and nothing runs", v)
	}
	_, p := acquired(t, set.Compartment("a"))
	oldest() // a scrape looks
	if v := oldest(); !(v > 0) {
		t.Errorf("%v seconds", v)
	}
	p.Release(nil)
	if v := oldest(); v != 0 {
		t.Errorf("%v seconds, and nothing runs any more", v)
	}
}

func acquired(t *testing.T, c *bulkhead.Compartment) (context.Context, bulkhead.Permit) {
	t.Helper()
	ctx, p, err := c.Acquire(t.Context())
	noError(t, err)
	return ctx, p
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
	for w.Stats().Samples == 0 {
		time.Sleep(time.Millisecond) // no event says when a sample is due
		w.SampleIfDue()
	}
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

// A registry of a warden, a limiter and 200 compartments, gathered in process, and scraped over HTTP as Prometheus does.
func BenchmarkScrape200Compartments(b *testing.B) {
	events, calls := must(wardenprom.NewEvents("api"))(b), must(wardenprom.NewEvents("shop"))(b)
	var compartments []bulkhead.CompartmentConfig
	for i := range 200 {
		compartments = append(compartments, bulkhead.CompartmentConfig{Name: fmt.Sprintf("dependency-%d", i), Guaranteed: 1, MaxQueue: 1})
	}
	set := must(bulkhead.New(bulkhead.Config{Total: 400, Compartments: compartments, Observer: calls.Bulkhead()}))(b)
	for _, c := range compartments {
		_, _ = bulkhead.Do(b.Context(), set.Compartment(c.Name), func(context.Context) (int, error) { return 1, nil })
	}
	w := newWarden(b, &parts{decision: decision.ControlDecision{Seq: 1, TargetConcurrency: 10}}, events.Limiter())
	r := prometheus.NewRegistry() // as a service has it
	noError(b, wardenprom.Register(r, events, calls, must(wardenprom.New(wardenprom.Config{
		Wardens: map[string]*warden.Warden{"api": w}, Sets: map[string]*bulkhead.Set{"shop": set},
	}))(b)))
	b.Run("sources", func(b *testing.B) { // without the text
		for b.Loop() {
			_ = set.Snapshot()
		}
	})
	b.Run("gather", func(b *testing.B) {
		for b.Loop() {
			_ = must(r.Gather())(b)
		}
	})
	b.Run("scrape", func(b *testing.B) { benchmarkScrape(b, r) })
	b.Run("peer", func(b *testing.B) { benchmarkScrape(b, bare(b, r)) }) // the same series as bare vectors
}

func benchmarkScrape(b *testing.B, r *prometheus.Registry) {
	b.Helper()
	handler := promhttp.HandlerFor(r, promhttp.HandlerOpts{EnableOpenMetrics: true})
	for b.Loop() {
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	}
}

// bare returns a registry with the series of another, each of them a gauge or a histogram of client_golang with one observation.
func bare(b *testing.B, r *prometheus.Registry) *prometheus.Registry {
	b.Helper()
	peer := prometheus.NewRegistry()
	for _, f := range must(r.Gather())(b) {
		var names []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			names = append(names, l.GetName())
		}
		gauges := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.GetName()}, names)
		times := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.GetName(), NativeHistogramBucketFactor: 1.1,
			Buckets: prometheus.DefBuckets}, names)
		var vector prometheus.Collector = gauges
		for _, m := range f.GetMetric() {
			labels := prometheus.Labels{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if m.GetHistogram() == nil {
				gauges.With(labels).Set(1)
			} else {
				vector = times
				times.With(labels).Observe(1)
			}
		}
		noError(b, peer.Register(vector))
	}
	return peer
}

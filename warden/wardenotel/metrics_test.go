// What a reader of the SDK gets to see.

package wardenotel_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/facts"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenotel"
)

// everything is metrics in which each family has a value.
func everything(t testing.TB, mp metric.MeterProvider) *wardenotel.Metrics {
	t.Helper()
	w := newWarden(t, &parts{
		sample: monitor.Sample{
			Utilization: monitor.Reading{Value: .75, OK: true}, Throttled: monitor.Reading{Value: .25, OK: true}, Runnable: monitor.Reading{Value: 3, OK: true},
			Lag: monitor.Lag{P90: 2 * time.Millisecond, Count: 9}, Service: monitor.Service{P90: 5 * time.Millisecond, Count: 7, Throughput: 70},
			Pools: []monitor.PoolReading{
				{Name: "orders-db", PoolStats: monitor.PoolStats{InUse: 7, Max: 10, Waiting: monitor.Reading{Value: 4, OK: true}}}, {Name: "cache", Problem: "blocked"},
			},
		},
		decision: decision.ControlDecision{Seq: 5, TargetConcurrency: 12, Reasons: []decision.Reason{decision.NewReason("queueing", "lag", 1, decision.Tighten)}},
	})
	for w.Stats().Samples == 0 {
		time.Sleep(time.Millisecond) // nothing tells when a sample is due
		w.SampleIfDue()
	}
	l := newLimiter(t, 1, nil)
	must(l.TryAcquire(limiter.Task{}))(t)
	_, _ = l.TryAcquire(limiter.Task{})
	set := must(bulkhead.New(bulkhead.Config{Total: 2, Compartments: []bulkhead.CompartmentConfig{
		{Name: "api", Guaranteed: 2, MaxQueue: 1, Tenants: bulkhead.TenantsConfig{Max: 1}},
	}}))(t)
	_, _ = bulkhead.Do(t.Context(), set.Compartment("api").Tenant("tenant"), func(context.Context) (int, error) { return 1, nil })
	return must(wardenotel.New(wardenotel.Config{
		MeterProvider: mp,
		Wardens:       map[string]*warden.Warden{"api": w},
		Limiters:      map[string]*limiter.Limiter{"prices": l},
		Sets:          map[string]*bulkhead.Set{"shop": set},
		Gates:         map[string]wardenotel.Gate{"login": {Stats: func() admission.Stats { return admission.Stats{Limit: 8, Rejected: 7, RejectedClosed: 3} }}},
		Ledgers: map[string]wardenotel.Ledger{"orders": {Stats: func() (wardenotel.LedgerStats, error) {
			return wardenotel.LedgerStats{Held: 4, OldestHeld: 90 * time.Second}, nil
		}}},
		Dispatchers: map[string]wardenotel.Dispatcher{"orders": {Partitions: 8, Stats: func() []dispatch.Stats {
			return []dispatch.Stats{{Name: "orders-3", Held: true, Fenced: 5, GaveUp: 10, Permanent: 4, Lag: 6, Stalled: "fenced"}}
		}}},
	}))(t)
}

func TestACollectionShowsWhatIs(t *testing.T) {
	mp, reader := provider(t)
	m := everything(t, mp)
	c := collect(t, reader)
	c.want(t, map[string]float64{
		"stopbank.limiter.running{stopbank.limiter.name=prices,stopbank.priority=normal}":                          1,
		"stopbank.limiter.rejected{stopbank.limiter.name=prices,stopbank.priority=normal,stopbank.reason=no_slot}": 1,
		"stopbank.limiter.target{stopbank.limiter.name=api}":                                                       12,
		"stopbank.warden.samples{stopbank.taken_by=request,stopbank.warden.name=api}":                              1,
		"stopbank.control.decisions{stopbank.warden.name=api}":                                                     5,
		"stopbank.control.reason{stopbank.reason=queueing,stopbank.warden.name=api}":                               1,
		"stopbank.monitor.utilization_ratio{stopbank.warden.name=api}":                                             .75,
		"stopbank.monitor.lag{stopbank.percentile=90,stopbank.warden.name=api}":                                    .002,
		"stopbank.bulkhead.slots{stopbank.set.name=shop}":                                                          2,
		"stopbank.compartment.admitted{stopbank.compartment.name=api,stopbank.set.name=shop}":                      1,
		"stopbank.compartment.tenants{stopbank.compartment.name=api,stopbank.set.name=shop}":                       1,
		"stopbank.admission.rejected{stopbank.gate.name=login,stopbank.reason=saturated}":                          4,
		"stopbank.lease.oldest_held{stopbank.ledger.name=orders}":                                                  90,
		"stopbank.dispatch.partitions{stopbank.dispatcher.name=orders}":                                            8,
		"stopbank.dispatch.partitions_held{stopbank.dispatcher.name=orders}":                                       1,

		"stopbank.dispatch.domains{stopbank.dispatcher.name=orders,stopbank.partition.name=orders-3,stopbank.state=fenced}":   5,
		"stopbank.dispatch.stalled{stopbank.dispatcher.name=orders,stopbank.partition.name=orders-3,stopbank.reason=fenced}":  1,
		"stopbank.dispatch.given_up{stopbank.cause=retries,stopbank.dispatcher.name=orders,stopbank.partition.name=orders-3}": 6,
		"stopbank.scrape.failures{stopbank.source=set/shop}":                                                                  0,
	})
	families := facts.Families()
	if len(c.metrics) != len(families) {
		t.Errorf("%d metrics, want %d", len(c.metrics), len(families))
	}
	for name, m := range c.metrics {
		if !regexp.MustCompile(`^stopbank\.[a-z]+\.[a-z_]+$`).MatchString(name) || strings.HasSuffix(name, "_total") || strings.HasSuffix(name, "_seconds") {
			t.Errorf("the name %s", name)
		}
		if !regexp.MustCompile(`^(s|1|\{[a-z]+\}(/s)?)$`).MatchString(m.Unit) || m.Description == "" {
			t.Errorf("%s: unit %q, description %q", name, m.Unit, m.Description)
		}
	}
	for name, want := range map[string]struct{ grows, adds bool }{
		"stopbank.limiter.rejected": {true, true}, "stopbank.limiter.running": {false, true}, "stopbank.control.target": {false, false},
	} {
		sum, adds := c.metrics[name].Data.(metricdata.Sum[float64])
		if adds != want.adds || adds && sum.IsMonotonic != want.grows {
			t.Errorf("%s: %T, monotonic: %v", name, c.metrics[name].Data, sum.IsMonotonic)
		}
	}
	if u := c.metrics["stopbank.lease.oldest_held"].Unit; u != "s" {
		t.Errorf("unit %q, want s", u)
	}

	for range 2 {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	if c := collect(t, reader); len(c.metrics) != 0 {
		t.Errorf("%d metrics after Close", len(c.metrics))
	}
	if (*wardenotel.Metrics)(nil).Close() != nil {
		t.Error("closing nothing failed")
	}
}

// TestThePageSaysTheNames: the examples of the rule, and the event, are on the page about all this.
func TestThePageSaysTheNames(t *testing.T) {
	text := string(must(os.ReadFile("../../docs/observability.md"))(t))
	for _, name := range []string{"stopbank.limiter.rejected", "stopbank.limiter.wait.duration", "stopbank.rejected"} {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("%s is not on the page", name)
		}
	}
}

// TestABrokenSourceCostsItself: it panics, ends its goroutine, or does not come back; everything else is shown.
func TestABrokenSourceCostsItself(t *testing.T) {
	mp, reader := provider(t)
	finish := make(chan struct{})
	l := newLimiter(t, 1, nil)
	must(wardenotel.New(wardenotel.Config{
		MeterProvider: mp, Timeout: 50 * time.Millisecond,
		Limiters: map[string]*limiter.Limiter{"well": l},
		Gates: map[string]wardenotel.Gate{
			"panics": {Stats: func() admission.Stats { panic("on purpose") }},
			"exits":  {Stats: func() admission.Stats { runtime.Goexit(); return admission.Stats{} }},
			"stuck":  {Stats: func() admission.Stats { <-finish; return admission.Stats{Limit: 1} }},
		},
	}))(t)
	for n := 1.; n <= 2; n++ {
		collect(t, reader).want(t, map[string]float64{
			"stopbank.limiter.target{stopbank.limiter.name=well}":    1,
			"stopbank.scrape.failures{stopbank.source=gate/panics}":  n,
			"stopbank.scrape.failures{stopbank.source=gate/exits}":   n,
			"stopbank.scrape.failures{stopbank.source=gate/stuck}":   n,
			"stopbank.scrape.failures{stopbank.source=limiter/well}": 0,
		})
		must(l.TryAcquire(limiter.Task{}))(t).Release() // while the source is stuck
	}
	close(finish)
	for {
		if _, there := collect(t, reader).values["stopbank.admission.limit{stopbank.gate.name=stuck}"]; there {
			break // it has come back in its own time
		}
	}
}

// TestRegisteredTwice: of one provider. What both show is added up, as the docs say; each alone goes on after the other
// was closed.
func TestRegisteredTwice(t *testing.T) {
	mp, reader := provider(t)
	l := newLimiter(t, 3, nil)
	show := func(name string) *wardenotel.Metrics {
		return must(wardenotel.New(wardenotel.Config{MeterProvider: mp, Limiters: map[string]*limiter.Limiter{name: l}}))(t)
	}
	one := show("one")
	show("other")
	both := map[string]float64{"stopbank.limiter.target{stopbank.limiter.name=one}": 3, "stopbank.limiter.target{stopbank.limiter.name=other}": 3}
	collect(t, reader).want(t, both)
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	delete(both, "stopbank.limiter.target{stopbank.limiter.name=one}")
	collect(t, reader).want(t, both)
}

// stuckExporter does not come back from an export until it is told to, or panics.
type stuckExporter struct {
	exporting chan struct{}
	finish    chan struct{}
}

func (e *stuckExporter) Temporality(k sdk.InstrumentKind) metricdata.Temporality {
	return sdk.DefaultTemporalitySelector(k)
}
func (e *stuckExporter) Aggregation(k sdk.InstrumentKind) sdk.Aggregation {
	return sdk.DefaultAggregationSelector(k)
}
func (e *stuckExporter) ForceFlush(context.Context) error { return nil }
func (e *stuckExporter) Shutdown(context.Context) error   { return nil }
func (e *stuckExporter) Export(context.Context, *metricdata.ResourceMetrics) error {
	select {
	case e.exporting <- struct{}{}:
	default:
	}
	<-e.finish
	return errors.New("on purpose")
}

// TestABlockedExporterHoldsNobodyUp: while it hangs, requests run and are counted.
func TestABlockedExporterHoldsNobodyUp(t *testing.T) {
	e := &stuckExporter{make(chan struct{}, 1), make(chan struct{})}
	mp := sdk.NewMeterProvider(sdk.WithReader(sdk.NewPeriodicReader(e, sdk.WithInterval(time.Millisecond))))
	times := must(wardenotel.NewLimiterTimes(wardenotel.TimesConfig{Name: "prices", MeterProvider: mp}))(t)
	l := newLimiter(t, 1, times)
	must(wardenotel.New(wardenotel.Config{MeterProvider: mp, Limiters: map[string]*limiter.Limiter{"prices": l}}))(t)
	<-e.exporting
	for range 1000 {
		must(l.TryAcquire(limiter.Task{}))(t).Release()
	}
	if s := l.Stats(); s.Executed != 1000 || s.ObserverPanics != 0 {
		t.Errorf("%+v", s)
	}
	close(e.finish)
	_ = mp.Shutdown(context.Background())
}

// brokenProvider makes histograms that panic.
type brokenProvider struct{ noop.MeterProvider }
type brokenMeter struct{ noop.Meter }
type brokenHistogram struct{ noop.Float64Histogram }

func (brokenProvider) Meter(string, ...metric.MeterOption) metric.Meter { return brokenMeter{} }
func (brokenMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return brokenHistogram{}, nil
}
func (brokenHistogram) Record(context.Context, float64, ...metric.RecordOption) { panic("on purpose") }

// TestAPanickingMeterIsContained: by the limiter, as any observer's panic is.
func TestAPanickingMeterIsContained(t *testing.T) {
	times := must(wardenotel.NewLimiterTimes(wardenotel.TimesConfig{Name: "prices", MeterProvider: brokenProvider{}}))(t)
	l := newLimiter(t, 1, times)
	must(l.TryAcquire(limiter.Task{}))(t).Release()
	if s := l.Stats(); s.Executed != 1 || s.Running != 0 || s.ObserverPanics != 2 {
		t.Errorf("%+v", s)
	}
}

func TestTimesGoWhereTheyBelong(t *testing.T) {
	mp, reader := provider(t)
	l := must(wardenotel.NewLimiterTimes(wardenotel.TimesConfig{Name: "l", MeterProvider: mp}))(t)
	observe := func(o decision.Outcome, waited, took time.Duration) {
		l.Observe(limiter.Event{Explanation: decision.Explanation{Outcome: o, Waited: waited}, Took: took})
	}
	observe(decision.Started, 2*time.Second, 0)
	observe(decision.Executed, 2*time.Second, 4*time.Second)
	observe(decision.Rejected, 8*time.Second, 0)
	observe(decision.OutcomeCanceled, 16*time.Second, 0)
	c := must(wardenotel.NewCompartmentTimes(wardenotel.TimesConfig{Name: "s", MeterProvider: mp}))(t)
	for _, e := range []bulkhead.Event{
		{Kind: bulkhead.Answered, Explanation: decision.Explanation{Limiter: "a\xff", Outcome: bulkhead.Failed, Waited: time.Second}, Took: 2 * time.Second},
		{Kind: bulkhead.Answered, Explanation: decision.Explanation{Limiter: "a\xff", Outcome: decision.Rejected, Waited: 4 * time.Second}},
		{Kind: bulkhead.Returned, Explanation: decision.Explanation{Limiter: "a\xff"}, Took: time.Hour},
	} {
		c.Observe(e)
	}
	got := collect(t, reader)
	got.want(t, map[string]float64{
		"stopbank.limiter.wait.duration{stopbank.limiter.name=l,stopbank.outcome=started,stopbank.priority=normal} sum":  2,
		"stopbank.limiter.wait.duration{stopbank.limiter.name=l,stopbank.outcome=rejected,stopbank.priority=normal} sum": 8,
		"stopbank.limiter.wait.duration{stopbank.limiter.name=l,stopbank.outcome=canceled,stopbank.priority=normal} sum": 16,
		"stopbank.limiter.execution.duration{stopbank.limiter.name=l} sum":                                               4,
		"stopbank.compartment.wait.duration{stopbank.compartment.name=a\uFFFD,stopbank.set.name=s} count":                2,
		"stopbank.compartment.execution.duration{stopbank.compartment.name=a\uFFFD,stopbank.set.name=s} sum":             2,
		"stopbank.compartment.execution.duration{stopbank.compartment.name=a\uFFFD,stopbank.set.name=s} count":           1,
	})
	for name, m := range got.metrics {
		if m.Unit != "s" {
			t.Errorf("%s in %q", name, m.Unit)
		}
	}
	for i := range 1000 {
		c.Observe(bulkhead.Event{Kind: bulkhead.Answered, Explanation: decision.Explanation{Limiter: strings.Repeat("c", i), Outcome: bulkhead.Succeeded}})
	}
	if h := collect(t, reader).metrics["stopbank.compartment.wait.duration"].Data.(metricdata.Histogram[float64]); len(h.DataPoints) > 101 {
		t.Errorf("%d compartments", len(h.DataPoints))
	}
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	var nobody *sdk.MeterProvider
	for field, cfg := range map[string]wardenotel.Config{
		"Config.Timeout":          {Timeout: 2},
		"Config.MeterProvider":    {MeterProvider: nobody},
		"Config.Limiters":         {Limiters: map[string]*limiter.Limiter{"": newLimiter(t, 1, nil)}},
		`Config.Gates["a"]`:       {Gates: map[string]wardenotel.Gate{"a": {}}},
		`Config.Ledgers["a"]`:     {Ledgers: map[string]wardenotel.Ledger{"a": {}}},
		`Config.Dispatchers["a"]`: {Dispatchers: map[string]wardenotel.Dispatcher{"a": {}}},
		`Config.Wardens["a"]`:     {Wardens: map[string]*warden.Warden{"a": nil}},
	} {
		m, err := wardenotel.New(cfg)
		var invalid *decision.InvalidError
		if m != nil || !errors.Is(err, decision.ErrInvalid) || !errors.As(err, &invalid) || invalid.Field != "wardenotel."+field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, cfg := range []wardenotel.TimesConfig{{}, {Name: "\xff"}, {Name: "a", MeterProvider: nobody}} {
		_, one := wardenotel.NewLimiterTimes(cfg)
		_, two := wardenotel.NewCompartmentTimes(cfg)
		if !errors.Is(one, decision.ErrInvalid) || !errors.Is(two, decision.ErrInvalid) {
			t.Errorf("%+v: %v, %v", cfg, one, two)
		}
	}
	if m, err := wardenotel.New(wardenotel.Config{}); err != nil || m.Close() != nil { // the global provider
		t.Error(err)
	}
}

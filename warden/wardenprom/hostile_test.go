// What others may do to a scrape, and what a scrape may do to requests.

package wardenprom_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

// TestRegister: all of them or none, and mistakes are errors.
func TestRegister(t *testing.T) {
	times := func(name string) *wardenprom.LimiterTimes {
		return must(wardenprom.NewLimiterTimes(wardenprom.TimesConfig{Name: name}))(t)
	}
	c := must(wardenprom.New(wardenprom.Config{}))(t)
	r := prometheus.NewRegistry()
	one := times("one")
	if err := wardenprom.Register(r, c, one, times("other")); err != nil {
		t.Fatal(err) // histograms of two limiters go together
	}
	var twice prometheus.AlreadyRegisteredError
	third := times("third")
	if err := wardenprom.Register(r, third, one); !errors.As(err, &twice) {
		t.Errorf("%v, want that one is registered", err)
	}
	if err := wardenprom.Register(r, third); err != nil {
		t.Errorf("%v: it should not have been left behind", err)
	}
	if err := wardenprom.Register(r, must(wardenprom.New(wardenprom.Config{}))(t)); !errors.As(err, &twice) {
		t.Errorf("a second collector: %v", err)
	}
	var none *prometheus.Registry
	var noTimes *wardenprom.LimiterTimes
	for name, err := range map[string]error{
		"nil":          wardenprom.Register(nil, c),
		"nil registry": wardenprom.Register(none, c),
		"no collector": wardenprom.Register(r, nil),
		"nil times":    wardenprom.Register(r, noTimes),
		"nil pointer":  wardenprom.Register(r, (*wardenprom.Collector)(nil)),
	} {
		if !errors.Is(err, decision.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fourth := times("fourth")
	if err := wardenprom.Register(r, fourth, nil); err == nil {
		t.Error("no error")
	}
	if r.Unregister(fourth) {
		t.Error("one of them was left registered")
	}
	if err := wardenprom.Register(r); err != nil {
		t.Errorf("nothing: %v", err)
	}
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	l, stats := newLimiter(t, 1, nil), wardenprom.Gate{Stats: func() admission.Stats { return admission.Stats{} }}
	for _, bad := range []struct {
		field string
		cfg   wardenprom.Config
	}{
		{"Config.Timeout", wardenprom.Config{Timeout: 2}},
		{"Config.Limiters", wardenprom.Config{Limiters: map[string]*limiter.Limiter{"": l}}},
		{"Config.Gates", wardenprom.Config{Gates: map[string]wardenprom.Gate{"\xff": stats}}},
		{"Config.Ledgers", wardenprom.Config{Ledgers: map[string]wardenprom.Ledger{strings.Repeat("x", 129): {}}}},
		{`Config.Gates["a"]`, wardenprom.Config{Gates: map[string]wardenprom.Gate{"a": {}}}},
		{`Config.Ledgers["a"]`, wardenprom.Config{Ledgers: map[string]wardenprom.Ledger{"a": {}}}},
		{`Config.Dispatchers["a"]`, wardenprom.Config{Dispatchers: map[string]wardenprom.Dispatcher{"a": {}}}},
		{`Config.Limiters["a"]`, wardenprom.Config{Limiters: map[string]*limiter.Limiter{"a": nil}}},
		{`Config.Wardens["a"]`, wardenprom.Config{Wardens: map[string]*warden.Warden{"a": {}}}},
		{`Config.Sets["a"]`, wardenprom.Config{Sets: map[string]*bulkhead.Set{"a": nil}}},
		{"Config.Limiters", wardenprom.Config{Wardens: map[string]*warden.Warden{"a": newWarden(t, &parts{}, nil)}, Limiters: map[string]*limiter.Limiter{"a": l}}},
	} {
		c, err := wardenprom.New(bad.cfg)
		var invalid *decision.InvalidError
		if c != nil || !errors.Is(err, decision.ErrInvalid) || !errors.As(err, &invalid) || invalid.Field != "wardenprom."+bad.field {
			t.Errorf("%s: %v", bad.field, err)
		}
	}
	for _, cfg := range []wardenprom.TimesConfig{
		{}, {Name: "\xff"}, {Name: "a", Buckets: []float64{0}}, {Name: "a", Buckets: []float64{2, 1}}, {Name: "a", Buckets: []float64{1, 1}},
		{Name: "a", Buckets: make([]float64, 51)},
	} {
		_, one := wardenprom.NewLimiterTimes(cfg)
		_, two := wardenprom.NewCompartmentTimes(cfg)
		if !errors.Is(one, decision.ErrInvalid) || !errors.Is(two, decision.ErrInvalid) {
			t.Errorf("%+v: %v, %v", cfg, one, two)
		}
	}
	if _, err := wardenprom.NewLedgerDecisions(""); !errors.Is(err, decision.ErrInvalid) {
		t.Error(err)
	}
}

// TestABrokenSourceCostsItself: it panics, ends its goroutine, or does not come back; everything else is shown, and
// requests run meanwhile.
func TestABrokenSourceCostsItself(t *testing.T) {
	l := newLimiter(t, 1, nil)
	finish := make(chan struct{})
	var calls atomic.Int64
	stuck := func() admission.Stats {
		if calls.Add(1) == 1 {
			<-finish
		}
		return admission.Stats{Limit: 1}
	}
	c := must(wardenprom.New(wardenprom.Config{
		Timeout:  50 * time.Millisecond,
		Limiters: map[string]*limiter.Limiter{"well": l},
		Gates: map[string]wardenprom.Gate{
			"panics": {Stats: func() admission.Stats { panic("on purpose") }},
			"exits":  {Stats: func() admission.Stats { runtime.Goexit(); return admission.Stats{} }},
			"stuck":  {Stats: stuck},
			"well":   {Stats: func() admission.Stats { return admission.Stats{Limit: 3} }},
		},
	}))(t)
	r := registered(t, c)
	for n := 1.; n <= 2; n++ {
		p := scrape(t, r)
		p.want(t, map[string]float64{
			`stopbank_limiter_target{limiter="well"}`:               1,
			`stopbank_admission_limit{gate="well"}`:                 3,
			`stopbank_scrape_failures_total{source="gate/panics"}`:  n,
			`stopbank_scrape_failures_total{source="gate/exits"}`:   n,
			`stopbank_scrape_failures_total{source="gate/stuck"}`:   n,
			`stopbank_scrape_failures_total{source="gate/well"}`:    0,
			`stopbank_scrape_failures_total{source="limiter/well"}`: 0,
		})
		if _, there := p.values[`stopbank_admission_limit{gate="stuck"}`]; there {
			t.Error("who has not answered is shown")
		}
		must(l.TryAcquire(limiter.Task{}))(t).Release() // while the source is stuck
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("a source that has not come back was asked %d times", n)
	}
	close(finish)
	for {
		if _, there := scrape(t, r).values[`stopbank_admission_limit{gate="stuck"}`]; there {
			break // it has come back in its own time
		}
	}
}

// TestHostileNames: whatever a compartment, a reason, an operation is called, the scrape is whole and short.
func TestHostileNames(t *testing.T) {
	huge := strings.Repeat("ü", 100_000)
	names := []string{"a\nb", "\xff", "\xfe", `quo"te\`, huge + "1", huge + "2", "{}=,"}
	var compartments []bulkhead.CompartmentConfig
	var reasons []decision.Reason
	for _, n := range names {
		compartments = append(compartments, bulkhead.CompartmentConfig{Name: n, Guaranteed: 1, MaxQueue: 1, Tenants: bulkhead.TenantsConfig{Max: 1}})
		reasons = append(reasons, decision.NewReason(n, n, 1, decision.Hold))
	}
	calls := must(wardenprom.NewCompartmentTimes(wardenprom.TimesConfig{Name: "set"}))(t)
	set := must(bulkhead.New(bulkhead.Config{Total: 10, Compartments: compartments, Observer: calls}))(t)
	w := newWarden(t, &parts{decision: decision.ControlDecision{Seq: 1, TargetConcurrency: 1, Reasons: reasons}}, nil)
	ops := must(wardenprom.NewLedgerDecisions("orders"))(t)
	c := must(wardenprom.New(wardenprom.Config{Sets: map[string]*bulkhead.Set{"set": set}, Wardens: map[string]*warden.Warden{"w": w}}))(t)
	r := registered(t, c, calls, ops)
	for w.Stats().Samples == 0 {
		time.Sleep(time.Millisecond) // nothing tells when a sample is due
		w.SampleIfDue()
	}
	for _, n := range names {
		ops.Count(n, n)
		for _, key := range names {
			_, _ = bulkhead.Do(t.Context(), set.Compartment(n).Tenant(key+"tenant"), func(context.Context) (int, error) { return 1, nil })
		}
	}
	for i := range 10_000 {
		ops.Count(strings.Repeat("o", i), "made up")
		calls.Observe(bulkhead.Event{Kind: bulkhead.Answered, Explanation: decision.Explanation{Limiter: strings.Repeat("c", i), Outcome: bulkhead.Succeeded}})
	}
	p := scrape(t, r)
	if len(p.text) > 2<<20 || strings.Contains(p.text, "tenant") && strings.Contains(p.text, "btenant") {
		t.Errorf("%d bytes", len(p.text))
	}
	p.want(t, map[string]float64{
		`stopbank_compartment_submitted_total{compartment="a\nb",set="set"}`:             float64(len(names)),
		`stopbank_control_reason{reason="a\nb",warden="w"}`:                              1,
		`stopbank_lease_decisions_total{ledger="orders",operation="a\nb",result="a\nb"}`: 1,
	})
	other := p.values[`stopbank_lease_decisions_total{ledger="orders",operation="other",result="other"}`]
	if n := len(p.families["stopbank_lease_decisions_total"].GetMetric()); n > 101 || other < 9800 {
		t.Errorf("%d pairs, %v others", n, other)
	}
	if n := len(p.families["stopbank_compartment_wait_seconds"].GetMetric()); n > 101 {
		t.Errorf("%d compartments", n)
	}
}

// TestManyAtOnce: scrapes, events and requests together, for the race detector.
func TestManyAtOnce(t *testing.T) {
	times := must(wardenprom.NewLimiterTimes(wardenprom.TimesConfig{Name: "l"}))(t)
	calls := must(wardenprom.NewCompartmentTimes(wardenprom.TimesConfig{Name: "s"}))(t)
	ops := must(wardenprom.NewLedgerDecisions("o"))(t)
	l := newLimiter(t, 2, times)
	set := must(bulkhead.New(bulkhead.Config{Total: 2, Observer: calls, Compartments: []bulkhead.CompartmentConfig{{Name: "a", Guaranteed: 1}, {Name: "b", Guaranteed: 1}}}))(t)
	r := registered(t, must(wardenprom.New(wardenprom.Config{Limiters: map[string]*limiter.Limiter{"l": l}, Sets: map[string]*bulkhead.Set{"s": set}}))(t), times, calls, ops)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 300 {
				if p, err := l.TryAcquire(limiter.Task{}); err == nil {
					p.Release()
				}
				_, _ = bulkhead.Do(t.Context(), set.Compartment([]string{"a", "b"}[i%2]), func(context.Context) (int, error) { return 1, nil })
				ops.Count("op", []string{"x", "y"}[i%2])
			}
		})
	}
	for range 5 {
		scrape(t, r)
	}
	all.Wait()
	p := scrape(t, r)
	started := p.values[`stopbank_limiter_wait_seconds{limiter="l",outcome="started",priority="normal"} count`]
	p.want(t, map[string]float64{
		`stopbank_limiter_executed_total{limiter="l",priority="normal"}`:                        started,
		`stopbank_limiter_execution_seconds{limiter="l"} count`:                                 started,
		`stopbank_limiter_wait_seconds{limiter="l",outcome="rejected",priority="normal"} count`: 1200 - started,
		`stopbank_lease_decisions_total{ledger="o",operation="op",result="x"}`:                  600,
	})
	if n := p.values[`stopbank_compartment_wait_seconds{compartment="a",set="s"} count`]; n != 600 {
		t.Errorf("%v calls in a, want 600", n)
	}
}

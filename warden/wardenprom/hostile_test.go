// SPDX-License-Identifier: Apache-2.0

// What others may do to a scrape, and what a scrape may do to requests.

package wardenprom_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

// TestRegister: all of them or none, and mistakes are errors.
func TestRegister(t *testing.T) {
	events := func(name string) *wardenprom.Events { return must(wardenprom.NewEvents(name))(t) }
	c := must(wardenprom.New(wardenprom.Config{}))(t)
	r := prometheus.NewRegistry()
	one := events("one")
	if err := wardenprom.Register(r, c, one, events("other")); err != nil {
		t.Fatal(err) // histograms of two limiters go together
	}
	var twice prometheus.AlreadyRegisteredError
	third := events("third")
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
	for name, err := range map[string]error{
		"nil":          wardenprom.Register(nil, c),
		"nil registry": wardenprom.Register(none, c),
		"no collector": wardenprom.Register(r, nil),
		"nil pointer":  wardenprom.Register(r, (*wardenprom.Events)(nil)),
	} {
		if !errors.Is(err, decision.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fourth := events("fourth")
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
	l, gate := newLimiter(t, 1, nil), must(admission.New(admission.Config{Limit: 1}))(t)
	for _, bad := range []struct {
		field string
		cfg   wardenprom.Config
	}{
		{"Config.Timeout", wardenprom.Config{Timeout: 2}},
		{"Config.Limiters", wardenprom.Config{Limiters: map[string]*limiter.Limiter{"": l}}},
		{"Config.Gates", wardenprom.Config{Gates: map[string]*admission.Gate{"\xff": gate}}},
		{"Config.Ledgers", wardenprom.Config{Ledgers: map[string]lease.Ledger{strings.Repeat("x", 129): brokenLedger{}}}},
		{`Config.Gates["a"]`, wardenprom.Config{Gates: map[string]*admission.Gate{"a": nil}}},
		{`Config.Ledgers["a"]`, wardenprom.Config{Ledgers: map[string]lease.Ledger{"a": nil}}},
		{`Config.Dispatchers["a"]`, wardenprom.Config{Dispatchers: map[string]func() []dispatch.Stats{"a": nil}}},
		{"Config.Partitions", wardenprom.Config{Partitions: map[string]int{"a": 1}}},
		{`Config.Limiters["a"]`, wardenprom.Config{Limiters: map[string]*limiter.Limiter{"a": nil}}},
		{`Config.Wardens["a"]`, wardenprom.Config{Wardens: map[string]*warden.Warden{"a": {}}}},
		{`Config.Sets["a"]`, wardenprom.Config{Sets: map[string]*bulkhead.Set{"a": nil}}},
		{"Config.Limiters", wardenprom.Config{
			Wardens: map[string]*warden.Warden{"a": newWarden(t, &parts{}, nil)}, Limiters: map[string]*limiter.Limiter{"a": l},
		}},
	} {
		c, err := wardenprom.New(bad.cfg)
		var invalid *decision.InvalidError
		if c != nil || !errors.Is(err, decision.ErrInvalid) || !errors.As(err, &invalid) || invalid.Field != "wardenprom."+bad.field {
			t.Errorf("%s: %v", bad.field, err)
		}
	}
	for _, name := range []string{"", "\xff", strings.Repeat("x", 129)} {
		if _, err := wardenprom.NewEvents(name); !errors.Is(err, decision.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestABrokenSourceCostsItself: it panics, ends its goroutine, or does not return; everything else is exported, and
// requests run meanwhile.
func TestABrokenSourceCostsItself(t *testing.T) {
	l := newLimiter(t, 1, nil)
	finish := make(chan struct{})
	var calls atomic.Int64
	stuck := func() []dispatch.Stats {
		if calls.Add(1) == 1 {
			<-finish
		}
		return nil
	}
	c := must(wardenprom.New(wardenprom.Config{
		Timeout:  50 * time.Millisecond,
		Limiters: map[string]*limiter.Limiter{"well": l},
		Dispatchers: map[string]func() []dispatch.Stats{
			"panics": func() []dispatch.Stats { panic("on purpose") },
			"exits":  func() []dispatch.Stats { runtime.Goexit(); return nil },
			"stuck":  stuck,
			"well":   func() []dispatch.Stats { return []dispatch.Stats{{Held: true}} },
		},
	}))(t)
	r := registered(t, c)
	for n := 1.; n <= 2; n++ {
		p := scrape(t, r)
		p.want(t, map[string]float64{
			`stopbank_limiter_target{limiter="well"}`:                    1,
			`stopbank_dispatch_partitions_held{dispatcher="well"}`:       1,
			`stopbank_scrape_failures_total{source="dispatcher/panics"}`: n,
			`stopbank_scrape_failures_total{source="dispatcher/exits"}`:  n,
			`stopbank_scrape_failures_total{source="dispatcher/stuck"}`:  n,
			`stopbank_scrape_failures_total{source="dispatcher/well"}`:   0,
			`stopbank_scrape_failures_total{source="limiter/well"}`:      0,
		})
		if _, there := p.values[`stopbank_dispatch_partitions_held{dispatcher="stuck"}`]; there {
			t.Error("a source that has not answered is exported")
		}
		must(l.TryAcquire(limiter.Task{}))(t).Release() // while the source is stuck
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("a source that has not come back was asked %d times", n)
	}
	close(finish)
	for {
		if _, there := scrape(t, r).values[`stopbank_dispatch_partitions_held{dispatcher="stuck"}`]; there {
			break // it has come back in its own time
		}
	}
}

// TestHostileNames: whatever a compartment or a reason is called, the scrape is whole and short.
func TestHostileNames(t *testing.T) {
	huge := strings.Repeat("ü", 100_000)
	names := []string{"a\nb", "\xff", "\xfe", `quo"te\`, huge + "1", huge + "2", "{}=,"}
	var compartments []bulkhead.CompartmentConfig
	var reasons []decision.Reason
	for _, n := range names {
		compartments = append(compartments, bulkhead.CompartmentConfig{Name: n, Guaranteed: 1, MaxQueue: 1,
			Tenants: bulkhead.TenantsConfig{Max: 1}})
		reasons = append(reasons, decision.NewReason(n, n, 1, decision.Hold))
	}
	calls := must(wardenprom.NewEvents("set"))(t)
	set := must(bulkhead.New(bulkhead.Config{Total: 10, Compartments: compartments, Observer: calls.Bulkhead()}))(t)
	w := newWarden(t, &parts{decision: decision.ControlDecision{Seq: 1, TargetConcurrency: 1, Reasons: reasons}}, nil)
	c := must(wardenprom.New(wardenprom.Config{Sets: map[string]*bulkhead.Set{"set": set},
		Wardens: map[string]*warden.Warden{"w": w}}))(t)
	r := registered(t, c, calls)
	sampled(w, 1)
	for _, n := range names {
		for _, key := range names {
			_, _ = bulkhead.Do(t.Context(), set.Compartment(n).Tenant(key+"tenant"), func(context.Context) (int, error) { return 1, nil })
		}
	}
	p := scrape(t, r)
	if len(p.text) > 2<<20 || strings.Contains(p.text, "tenant") && strings.Contains(p.text, "btenant") {
		t.Errorf("%d bytes", len(p.text))
	}
	p.want(t, map[string]float64{
		`stopbank_compartment_submitted_total{compartment="a\nb",set="set"}`: float64(len(names)),
		`stopbank_control_reason{reason="a\nb",warden="w"}`:                  1,
	})
}

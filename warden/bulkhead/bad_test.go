// SPDX-License-Identifier: Apache-2.0

// Bad input: every mistake is a typed error that names the field, and takes no slot.

package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/warden/decision"
)

func wantInvalid(t *testing.T, err error, field string) {
	t.Helper()
	var invalid *decision.InvalidError
	if !errors.As(err, &invalid) || !errors.Is(err, decision.ErrInvalid) || invalid.Field != "bulkhead."+field ||
		invalid.Allowed == "" || !strings.Contains(err.Error(), field) {
		t.Errorf("%v, want an InvalidError of %s", err, field)
	}
}

func TestBadConfig(t *testing.T) {
	one := func(c CompartmentConfig) Config {
		if c.Name == "" {
			c.Name = "a"
		}
		return Config{Total: 10, Compartments: []CompartmentConfig{c}}
	}
	const first = `Config.Compartments["a"].`
	for _, c := range []struct {
		field string
		cfg   Config
	}{
		{"Config.Compartments", Config{}},
		{"Config.Compartments", Config{Total: 1}},
		{"Config.Total", Config{Compartments: one(CompartmentConfig{Max: 1}).Compartments}},
		{"Config.Total", Config{Total: -1, Compartments: one(CompartmentConfig{Max: 1}).Compartments}},
		{"Config.Total", Config{Total: math.MaxInt, Compartments: one(CompartmentConfig{Max: 1}).Compartments}},
		{"Config.Observer", Config{Total: 1, Observer: (*recording)(nil), Compartments: one(CompartmentConfig{Max: 1}).Compartments}},
		{"Config.Compartments[0].Name", Config{Total: 1, Compartments: []CompartmentConfig{{Max: 1}}}},
		{"Config.Compartments[1].Name", Config{Total: 2, Compartments: []CompartmentConfig{{Name: "a", Max: 1}, {Name: "a", Max: 1}}}},
		{"Config.Compartments: the sum of Guaranteed", Config{Total: 3,
			Compartments: []CompartmentConfig{{Name: "a", Guaranteed: 2}, {Name: "b", Guaranteed: 2}}}},
		{first + "Guaranteed", one(CompartmentConfig{Guaranteed: 11})},
		{first + "Guaranteed", one(CompartmentConfig{Guaranteed: -1})},
		{first + "Guaranteed", one(CompartmentConfig{Guaranteed: math.MaxInt})},
		{first + "Lendable", one(CompartmentConfig{Guaranteed: 2, Lendable: 3, MaxQueue: 1})},
		{first + "Lendable", one(CompartmentConfig{Guaranteed: 2, Lendable: -1, MaxQueue: 1})},
		{first + "Lendable", one(CompartmentConfig{Guaranteed: 2, Lendable: 1})},
		{first + "Max", one(CompartmentConfig{Guaranteed: 2, Max: 1})},
		{first + "Max", one(CompartmentConfig{Max: 11})},
		{first + "Max", one(CompartmentConfig{Max: -1})},
		{first + "Max", one(CompartmentConfig{})},
		{first + "MaxQueue", one(CompartmentConfig{Max: 1, MaxQueue: -1})},
		{first + "MaxWait", one(CompartmentConfig{Max: 1, MaxWait: -1})},
		{first + "MaxWait", one(CompartmentConfig{Max: 1, MaxWait: time.Second})},
		{first + "MaxWait", one(CompartmentConfig{Max: 1, MaxQueue: 1, MaxWait: 200})}, // nanoseconds
		{first + "Timeout", one(CompartmentConfig{Max: 1, Timeout: -1})},
		{first + "Timeout", one(CompartmentConfig{Max: 1, Timeout: 500})},
		{first + "MaxFallback", one(CompartmentConfig{Max: 1, MaxFallback: -1})},
		{first + "Breaker", one(CompartmentConfig{Max: 1, Breaker: (*breaker)(nil)})},
		{first + "Tenants.Max", one(CompartmentConfig{Max: 1, MaxQueue: 1, Tenants: TenantsConfig{Max: -1}})},
		{first + "Tenants.Max", one(CompartmentConfig{Max: 1, MaxQueue: 1, Tenants: TenantsConfig{Keys: 1}})},
		{first + "Tenants.Max", one(CompartmentConfig{Max: 1, MaxQueue: 1,
			Tenants: TenantsConfig{Weight: func(string) int { return 1 }}})},
		{first + "Tenants.Keys", one(CompartmentConfig{Max: 1, MaxQueue: 1, Tenants: TenantsConfig{Max: 1, Keys: -1}})},
		{first + "Tenants.Keys", one(CompartmentConfig{Max: 1, MaxQueue: 1, Tenants: TenantsConfig{Max: 1, Keys: maxKeys + 1}})},
		{first + "MaxQueue", one(CompartmentConfig{Max: 1, Tenants: TenantsConfig{Max: 1}})},
	} {
		s, err := New(c.cfg)
		if s != nil {
			t.Errorf("%s: accepted", c.field)
		}
		wantInvalid(t, err, c.field)
	}
}

// TestBadObservers are rejected with the element's index: a nil one would panic at each event.
func TestBadObservers(t *testing.T) {
	good := new(recording)
	cfg := Config{Total: 1, Compartments: []CompartmentConfig{{Name: "a", Max: 1}}}
	for want, o := range map[string]Observers{
		"Config.Observer[0]":    {nil},
		"Config.Observer[1]":    {good, (*recording)(nil)},
		"Config.Observer[1][0]": {good, Observers{nil}},
	} {
		cfg.Observer = o
		_, err := New(cfg)
		wantInvalid(t, err, want)
	}
	for _, o := range []Observers{nil, {}, {good, Observers{good}}} {
		cfg.Observer = o
		if _, err := New(cfg); err != nil {
			t.Error(err)
		}
	}
}

func TestUnknownCompartmentListsTheKnown(t *testing.T) {
	cfg, want := Config{Total: 12}, []string{}
	for i := range 12 {
		name := fmt.Sprintf("c%d", i)
		cfg.Compartments = append(cfg.Compartments, CompartmentConfig{Name: name, Max: 1})
		want = append(want, strconv.Quote(name))
	}
	err := mustNew(t, cfg).Compartment("x").unknownError()
	if text := `bulkhead: unknown compartment "x"; the set has ` + strings.Join(want[:10], ", ") + ", 2 more"; err.Error() != text {
		t.Errorf("%v, want %s", err, text)
	}
	if err := (*Compartment)(nil).unknownError(); err.Error() != "bulkhead: the compartment is nil; allowed: one from Set.Compartment" {
		t.Error(err)
	}
}

func TestBadPlan(t *testing.T) {
	s := mustNew(t, Config{Total: 10, Compartments: []CompartmentConfig{{Name: "a", Guaranteed: 4},
		{Name: "b", Guaranteed: 4, MaxQueue: 1}}})
	before := s.Plan()
	for field, change := range map[string]func(*Plan){
		"Plan.Total":                        func(p *Plan) { p.Total = 0 },
		"Plan.Compartments":                 func(p *Plan) { p.Compartments = p.Compartments[:1] },
		`Plan.Compartments["b"].Guaranteed`: func(p *Plan) { p.Compartments[1].Guaranteed = -1 },
		`Plan.Compartments["a"].Lendable`:   func(p *Plan) { p.Compartments[0].Lendable = 1 },
		`Plan.Compartments["b"].Max`:        func(p *Plan) { p.Compartments[1].Max = 3 },
		`Plan.Compartments["a"].Max`:        func(p *Plan) { p.Compartments[0].Max = math.MaxInt },
	} {
		p := s.Plan()
		change(&p)
		_, err := s.Resize(p)
		wantInvalid(t, err, field)
	}
	for name, change := range map[string]func(*Plan){
		"a stranger": func(p *Plan) { p.Compartments[0].Name = "x" },
		"twice":      func(p *Plan) { p.Compartments = append(p.Compartments, p.Compartments[0]) },
		"too much":   func(p *Plan) { p.Total = 7 },
	} {
		p := s.Plan()
		change(&p)
		if _, err := s.Resize(p); !errors.Is(err, decision.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := s.Plan(); after.Revision != 1 || after.Total != before.Total {
		t.Errorf("something has changed: %+v", after)
	}
	p := s.Plan()
	p.Compartments[0].Max = 0 // as Guaranteed
	if _, err := s.Resize(p); err != nil || s.Plan().Compartments[0].Max != 4 {
		t.Error(err)
	}
	p.Compartments[0].Guaranteed = 9 // the caller's own copy
	if s.Plan().Compartments[0].Guaranteed != 4 {
		t.Error("the plan is shared with its maker")
	}
}

func TestBadCalls(t *testing.T) {
	s, a := single(t, CompartmentConfig{Guaranteed: 1})
	var none context.Context
	_, err := Do(none, a, nothing)
	wantInvalid(t, err, "ctx")
	_, err = Do[int](t.Context(), a, nil)
	wantInvalid(t, err, "fn")
	_, err = DoOr(t.Context(), a, nothing, nil)
	wantInvalid(t, err, "fallback")
	_, err = Do(t.Context(), &Compartment{}, nothing)
	wantInvalid(t, err, "Compartment")
	_, _, err = a.Acquire(none)
	wantInvalid(t, err, "ctx")
	_, _, err = (&Compartment{}).Acquire(t.Context())
	wantInvalid(t, err, "Compartment")
	for _, c := range []*Compartment{nil, {}} {
		if key, tenant := c.TenantKey(); c.Name() != "" || c.Criticality() != 0 || c.Tenant("x") != c || key != "" || tenant {
			t.Errorf("%p has something", c)
		}
		if diff := cmp.Diff(CompartmentSnapshot{}, c.Snapshot()); diff != "" {
			t.Errorf("%p (-want +got)\n%s", c, diff)
		}
	}
	if c := a.Snapshot(); c.Submitted != 0 {
		t.Errorf("%+v", c)
	}
	rest(t, s, 0)
}

func TestBadDecisions(t *testing.T) {
	s := mustNew(t, Config{Total: 4, Compartments: []CompartmentConfig{{Name: "a", Guaranteed: 2, MaxQueue: 1}}})
	for i, d := range []decision.ControlDecision{
		{TargetConcurrency: math.MinInt}, {TargetConcurrency: math.MaxInt, ShedProbability: math.NaN()},
		{TargetConcurrency: 4, ShedProbability: math.Inf(1), Yields: math.MaxInt, Expected: -1, ValidFor: -time.Hour},
	} {
		d.Seq = uint64(i)
		s.Apply(d)
		if snap := s.Snapshot(); snap.EffectiveTotal < 0 || snap.EffectiveTotal > 4 {
			t.Errorf("%+v", snap)
		}
	}
	if _, err := Do(t.Context(), s.Compartment("a"), nothing); err != nil {
		t.Error(err)
	}
	rest(t, s, 0)
}

func TestLongDurationsAreNoDeadlineInThePast(t *testing.T) {
	_, a := single(t, CompartmentConfig{Guaranteed: 1, MaxQueue: 1, MaxWait: math.MaxInt64, Timeout: math.MaxInt64})
	if _, err := Do(t.Context(), a, nothing); err != nil {
		t.Error(err)
	}
}

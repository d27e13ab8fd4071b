// SPDX-License-Identifier: Apache-2.0

// Under decisions (B11): what is left of the shares, and who says so.

package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
)

func TestGuaranteesShrinkInProportion(t *testing.T) {
	s := mustNew(t, Config{Total: 20, Compartments: []CompartmentConfig{
		{Name: "low", Guaranteed: 4, Lendable: 4, Max: 12, MaxQueue: 1, Criticality: decision.Background},
		{Name: "high", Guaranteed: 6, Lendable: 3, Max: 12, MaxQueue: 1, Timeout: time.Second, Criticality: decision.Critical},
		{Name: "same", Guaranteed: 4, Max: 4, Criticality: decision.Background},
		{Name: "borrower", Max: 20, Timeout: time.Second},
	}})
	for i, c := range []struct {
		target int
		want   string // guaranteed/lendable/max of low, high, same, borrower
	}{
		{25, "4/4/12 6/3/12 4/0/4 0/0/20"}, {20, "4/4/12 6/3/12 4/0/4 0/0/20"}, {19, "4/4/9 6/3/12 4/0/4 0/0/12"},
		{14, "4/4/4 6/3/10 4/0/4 0/0/7"},
		{13, "4/4/4 5/2/9 4/0/4 0/0/6"}, {10, "3/3/3 4/2/7 3/0/3 0/0/5"}, {7, "2/2/2 3/1/5 2/0/2 0/0/3"},
		{3, "1/1/1 1/0/2 1/0/1 0/0/1"},
		{2, "1/1/1 1/0/2 0/0/0 0/0/1"}, {1, "0/0/0 1/0/1 0/0/0 0/0/0"}, {0, "0/0/0 0/0/0 0/0/0 0/0/0"},
		{20, "4/4/12 6/3/12 4/0/4 0/0/20"},
	} {
		s.Apply(bound(uint64(i+1), c.target))
		var each []string
		for _, c := range s.Snapshot().Compartments {
			each = append(each, fmt.Sprintf("%d/%d/%d", c.Effective.Guaranteed, c.Effective.Lendable, c.Effective.Max))
		}
		if got := strings.Join(each, " "); got != c.want || s.Snapshot().EffectiveTotal != min(20, c.target) {
			t.Errorf("B11: target %d: %s, want %s", c.target, each, c.want)
		}
	}
}

// Whatever the plan and the total below it: no slot is lost, each guarantee keeps one slot or the most critical do, the rest is
// in proportion, and a compartment alone reaches exactly the Max that the snapshot shows.
func TestPropertyGuaranteesShrinkInProportion(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg, sum, guarantees := Config{}, 0, 0
		for i := range rapid.IntRange(1, 6).Draw(rt, "compartments") {
			c := CompartmentConfig{Name: fmt.Sprint(i), Guaranteed: rapid.IntRange(0, 12).Draw(rt, "guaranteed"), MaxQueue: 1}
			c.Lendable = rapid.IntRange(0, c.Guaranteed).Draw(rt, "lendable")
			c.Timeout = time.Duration(rapid.IntRange(0, 1).Draw(rt, "timeout")) * time.Hour
			c.Criticality = decision.Priority(rapid.IntRange(0, 2).Draw(rt, "criticality"))
			if sum += c.Guaranteed; c.Guaranteed > 0 {
				guarantees++
			}
			cfg.Compartments = append(cfg.Compartments, c)
		}
		cfg.Total = max(1, sum) + rapid.IntRange(0, 5).Draw(rt, "guaranteed to none")
		for i := range cfg.Compartments {
			cfg.Compartments[i].Max = cfg.Total
		}
		total := rapid.IntRange(0, cfg.Total-1).Draw(rt, "total")
		inVirtualTime(t, rt, func(t *testing.T) string {
			s := mustNew(t, cfg)
			s.Apply(bound(1, total))
			left, all := min(total, sum), s.Snapshot().Compartments
			for i, c := range all {
				left -= c.Effective.Guaranteed
				quota := float64(c.Guaranteed) * float64(min(total, sum)) / float64(max(1, sum))
				switch g := c.Effective.Guaranteed; {
				case g > c.Guaranteed, float64(g) > max(1, math.Ceil(quota)), total >= guarantees && g < min(1, c.Guaranteed):
					return fmt.Sprintf("B11: %q has %d of %d, its part of %d is %.2f", c.Name, g, c.Guaranteed, total, quota)
				case c.Effective.Lendable != c.Lendable*g/max(1, c.Guaranteed):
					return fmt.Sprintf("B11: %q lends %d of %d, by the plan %d of %d", c.Name, c.Effective.Lendable, g, c.Lendable, c.Guaranteed)
				}
				for _, d := range all {
					more := c.Criticality > d.Criticality
					if more && c.Effective.Guaranteed < d.Effective.Guaranteed &&
						(c.Guaranteed == d.Guaranteed || c.Effective.Guaranteed == 0 && c.Guaranteed > 0) {
						return fmt.Sprintf("B11: of %d, the more critical %q has %d of %d, and %q %d", total, c.Name, c.Effective.Guaranteed,
							c.Guaranteed, d.Name, d.Effective.Guaranteed)
					}
				}
				var held []Permit
				for {
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					_, p, err := s.Compartment(fmt.Sprint(i)).Acquire(ctx)
					cancel()
					if err != nil {
						break
					}
					held = append(held, p)
				}
				for _, p := range held {
					p.Release(nil)
				}
				if len(held) != c.Effective.Max || cfg.Compartments[i].Timeout == 0 &&
					len(held) > c.Effective.Guaranteed+total-min(total, sum) {
					return fmt.Sprintf("B11: %q has %d slots, guaranteed %d, at most %d, Timeout %v; %d of %d are guaranteed to none",
						c.Name, len(held), c.Effective.Guaranteed, c.Effective.Max, cfg.Compartments[i].Timeout, total-min(total, sum), total)
				}
			}
			if left != 0 {
				return fmt.Sprintf("B11: %d of %d slots are guaranteed to none", left, total)
			}
			return ""
		})
	})
}

// TestTheShopUnderDecisions: at each total, analytics, products and checkout take all they get, and nothing ends. The admin
// panel, which the operator needs in that incident, has its slots as soon as there are two.
func TestTheShopUnderDecisions(t *testing.T) {
	for total := range 101 {
		synctest.Test(t, func(t *testing.T) {
			s := mustNew(t, Config{Total: 100, Compartments: []CompartmentConfig{
				{Name: "checkout", Guaranteed: 50, Lendable: 20, Max: 70, MaxQueue: 100, Timeout: 5 * time.Second,
					Criticality: decision.Critical},
				{Name: "products", Guaranteed: 30, Max: 40, MaxQueue: 50, Timeout: 3 * time.Second},
				{Name: "analytics", Guaranteed: 15, Lendable: 15, Max: 30, MaxQueue: 10, Timeout: 30 * time.Second,
					Criticality: decision.Background},
				{Name: "admin", Guaranteed: 5, MaxQueue: 5, Timeout: 10 * time.Second, Criticality: decision.High},
			}})
			s.Apply(bound(1, total))
			take := func(name string) bool {
				ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
				defer cancel()
				_, _, err := s.Compartment(name).Acquire(ctx)
				return err == nil
			}
			for _, name := range []string{"analytics", "products", "checkout"} {
				for take(name) {
				}
			}
			want := 0
			if total > 1 {
				want = max(1, total*5/100)
			}
			for i := range want {
				if !take("admin") {
					t.Errorf("B11: at a total of %d, admin has %d slots of its own, want %d", total, i, want)
				}
			}
			if n := s.Snapshot().InFlight; n > total {
				t.Errorf("B11: %d in flight of %d", n, total)
			}
		})
	}
}

func TestADecisionRulesAllCompartments(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		seen := &recording{}
		s := mustNew(t, Config{Total: 4, Observer: seen, Compartments: []CompartmentConfig{
			{Name: "a", Guaranteed: 1, MaxQueue: 1, Criticality: decision.Critical}, {Name: "b", Guaranteed: 1, MaxQueue: 1},
		}})
		s.Apply(decision.ControlDecision{
			Seq: 70, TargetConcurrency: 4, ShedProbability: 1, Yields: 2, Expected: time.Hour, ValidFor: time.Second,
			Reasons: []decision.Reason{decision.NewReason("queueing", "lag", 1, decision.Tighten)},
			Stale:   &decision.ControlDecision{TargetConcurrency: 1, ShedProbability: 0.5},
		})
		s.Apply(bound(69, 0)) // older: ignored
		a, b := s.Compartment("a"), s.Compartment("b")
		w.send(a, "a")
		w.send(b, "b")
		if j := w.send(a, "waits"); !j.waits() {
			t.Errorf("B11: a critical compartment sheds: %v", j.err)
		}
		_, err := Do(t.Context(), b, nothing)
		wantRejected(t, err, decision.PressureHigh)
		var r *decision.Rejection
		errors.As(err, &r)
		if d := r.Decision; d.Seq != 70 || r.DecisionState != decision.Applied || d.TargetConcurrency != 4 || d.Expected != 0 ||
			d.Yields != 2 || !containsAll(fmt.Sprint(d.Reasons), "queueing", "revision=1") {
			t.Errorf("B11: %+v", d)
		}
		sleep(time.Second + time.Millisecond)
		snap := s.Snapshot()
		if !snap.Stale || snap.EffectiveTotal != 1 || snap.Decision.Seq != 70 || snap.Compartments[1].Effective.Guaranteed != 0 {
			t.Errorf("B11: %+v", snap)
		}
		if n := len(seen.of(Applied)); n != 2 {
			t.Errorf("B11: %d times told", n)
		}
		s.Apply(bound(71, 9))
		if s.Snapshot().Stale || s.Snapshot().EffectiveTotal != 4 {
			t.Errorf("B11: %+v", s.Snapshot())
		}
	})
}

// TestTheSumFollowsTheTarget lowers the target under a full set: what is borrowed is given back first.
func TestTheSumFollowsTheTarget(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, a, b := pair(t, CompartmentConfig{Guaranteed: 4, Lendable: 4, MaxQueue: 9, Criticality: decision.Critical},
			CompartmentConfig{Guaranteed: 4, Max: 10, MaxQueue: 9})
		borrowers := w.fill(b, 10)
		owners := w.fill(a, 4)
		s.Apply(bound(1, 6))
		for i := range 7 {
			w.let(borrowers[i])
			snap := s.Snapshot()
			want := max(9-i, 6) // by attrition to 6, and then the owner has its 3 before anybody else
			if snap.InFlight != want || i >= 6 && !owners[2].runs() {
				t.Fatalf("B11: after %d ended: %d in flight, want %d; %+v", i+1, snap.InFlight, want, snap.Compartments)
			}
		}
		rest(t, s, 6)
	})
}

// TestSharesOfManySlots: as many slots as there may be are divided in proportion, where an int has 32 bits as well.
func TestSharesOfManySlots(t *testing.T) {
	s := mustNew(t, Config{Total: maxSlots, Compartments: []CompartmentConfig{
		{Name: "a", Guaranteed: 700_000}, {Name: "b", Guaranteed: 300_000},
	}})
	s.Apply(bound(1, 500_000))
	got := s.Snapshot().Compartments
	if a, b := got[0].Effective.Guaranteed, got[1].Effective.Guaranteed; a != 350_000 || b != 150_000 {
		t.Errorf("B11: %d and %d", a, b)
	}
	const n = maxSlots
	if portion(n, n-1, n) != n-1 || portion(n-1, n-1, n) != n-2 || !smaller(n-2, n-1, n-1, n) || smaller(n-1, n, n-2, n-1) ||
		smaller(n, n, n, n) {
		t.Error("B11: one in a million is lost")
	}
}

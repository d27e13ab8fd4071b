// Under decisions (B11): what is left of the shares, and who says so.

package bulkhead

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

func TestLendingStopsThenGuaranteesShrink(t *testing.T) {
	s := mustNew(t, Config{Total: 20, Compartments: []CompartmentConfig{
		{Name: "low", Guaranteed: 4, Lendable: 4, Max: 12, MaxQueue: 1, Criticality: limiter.Background},
		{Name: "high", Guaranteed: 6, Lendable: 3, Max: 12, MaxQueue: 1, Criticality: limiter.Critical},
		{Name: "same", Guaranteed: 4, Max: 4, Criticality: limiter.Background},
	}})
	for i, c := range []struct {
		target int
		want   string // guaranteed/lendable/max of low, high, same
	}{
		{25, "4/4/12 6/3/12 4/0/4"}, {20, "4/4/12 6/3/12 4/0/4"}, {19, "4/0/9 6/0/11 4/0/4"}, {14, "4/0/4 6/0/6 4/0/4"},
		{13, "4/0/4 6/0/6 3/0/3"}, {10, "2/0/2 6/0/6 2/0/2"}, {7, "1/0/1 6/0/6 0/0/0"}, {6, "0/0/0 6/0/6 0/0/0"}, {2, "0/0/0 2/0/2 0/0/0"},
		{0, "0/0/0 0/0/0 0/0/0"}, {20, "4/4/12 6/3/12 4/0/4"},
	} {
		s.Apply(bound(uint64(i+1), c.target))
		var each []string
		for _, c := range s.Snapshot().Compartments {
			each = append(each, fmt.Sprintf("%d/%d/%d", c.EffectiveGuaranteed, c.EffectiveLendable, c.EffectiveMax))
		}
		if got := strings.Join(each, " "); got != c.want || s.Snapshot().EffectiveTotal != min(20, c.target) {
			t.Errorf("B11: target %d: %s, want %s", c.target, each, c.want)
		}
	}
}

// Of what rounding leaves over, nothing is for those who are guaranteed nothing.
func TestWhatIsLeftOverIsForThoseWithAGuarantee(t *testing.T) {
	s := mustNew(t, Config{Total: 6, Compartments: []CompartmentConfig{{Name: "borrower", Max: 6}, {Name: "a", Guaranteed: 3}, {Name: "b", Guaranteed: 3}}})
	s.Apply(bound(1, 5))
	var each []int
	for _, c := range s.Snapshot().Compartments {
		each = append(each, c.EffectiveGuaranteed)
	}
	if !slices.Equal(each, []int{0, 3, 2}) {
		t.Errorf("B11: %d, want 0, 3 and 2", each)
	}
}

func TestADecisionRulesAllCompartments(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		seen := &recording{}
		s := mustNew(t, Config{Total: 4, Observer: seen, Compartments: []CompartmentConfig{
			{Name: "a", Guaranteed: 1, MaxQueue: 1, Criticality: limiter.Critical}, {Name: "b", Guaranteed: 1, MaxQueue: 1},
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
		wantRejected(t, err, limiter.PressureHigh)
		var r *limiter.Rejection
		errors.As(err, &r)
		if d := r.Decision; d.Seq != 70 || r.DecisionState != limiter.Applied || d.TargetConcurrency != 4 || d.Expected != 0 || d.Yields != 2 || !containsAll(fmt.Sprint(d.Reasons), "queueing", "revision=1") {
			t.Errorf("B11: %+v", d)
		}
		sleep(time.Second + time.Millisecond)
		snap := s.Snapshot()
		if !snap.Stale || snap.EffectiveTotal != 1 || snap.Decision.Seq != 70 || snap.Compartments[1].EffectiveGuaranteed != 0 {
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
		s, a, b := pair(t, CompartmentConfig{Guaranteed: 4, Lendable: 4, MaxQueue: 9, Criticality: limiter.Critical},
			CompartmentConfig{Guaranteed: 4, Max: 10, MaxQueue: 9})
		borrowers := w.fill(b, 10)
		owners := w.fill(a, 4)
		s.Apply(bound(1, 6))
		for i := range 8 {
			w.let(borrowers[i])
			snap := s.Snapshot()
			want := max(9-i, min(6, 6)) // by attrition to 6, and then the owner has its 4 before anybody else
			if i >= 8 {
				want = 6
			}
			if snap.InFlight != want || i >= 7 && !owners[3].runs() {
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
	if a, b := got[0].EffectiveGuaranteed, got[1].EffectiveGuaranteed; a != 350_000 || b != 150_000 {
		t.Errorf("B11: %d and %d", a, b)
	}
	const n = maxSlots
	if portion(n, n-1, n) != n-1 || portion(n-1, n-1, n) != n-2 || !smaller(n-2, n-1, n-1, n) || smaller(n-1, n, n-2, n-1) || smaller(n, n, n, n) {
		t.Error("B11: one in a million is lost")
	}
}

// SPDX-License-Identifier: Apache-2.0

// What may cross from control to a limiter, and what a malformed decision becomes.

package decision

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDefaultIsValid(t *testing.T) {
	d := Default()
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	if d.Seq != 0 || d.TargetConcurrency < 16 || d.ShedProbability != 0 || d.ValidFor != 0 || len(d.Reasons) != 1 ||
		d.Reasons[0].Code() != "initial" {
		t.Fatalf("%+v", d)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for want, d := range map[string]ControlDecision{
		"TargetConcurrency is -1":                {TargetConcurrency: -1},
		"Parked is -1":                           {Parked: -1},
		"ShedProbability is NaN":                 {ShedProbability: math.NaN()},
		"ShedProbability is +Inf":                {ShedProbability: math.Inf(1)},
		"ShedProbability is -0.5":                {ShedProbability: -0.5},
		"ShedProbability is 1.5":                 {ShedProbability: 1.5},
		"ValidFor is -1ns":                       {ValidFor: -1},
		"Expected is -1ns":                       {Expected: -1},
		`Needs["GET /a"] is -1ns`:                {Needs: map[string]time.Duration{"": 0, "GET /a": -1}},
		"Needs is 65 names; allowed: at most 64": {Needs: manyNeeds(maxNeeds + 1)},
		`Stale.Needs["b"] is -`:                  {Stale: &ControlDecision{Needs: map[string]time.Duration{"b": math.MinInt64}}},
		`Parts["b"].TargetConcurrency is 0`:      {Parts: map[string]Part{"a": {TargetConcurrency: 1}, "b": {}}},
		`Stale.Parts["b"].MaxWait is -1ns`: {Stale: &ControlDecision{Parts: map[string]Part{"b": {TargetConcurrency: 1,
			MaxWait: -1}}}},
		"Yields is -1":           {Yields: -1},
		"Yields is 65":           {Yields: maxYields + 1},
		"Stale.Expected is -1ns": {Stale: &ControlDecision{Expected: -1}},
		"Stale.TargetConcurrency is 2; allowed: at ": {TargetConcurrency: 1, Stale: &ControlDecision{TargetConcurrency: 2}},
	} {
		err := d.Validate()
		var invalid *InvalidError
		if !errors.Is(err, ErrInvalid) || !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want it to say %q", d, err, want)
		}
		if err := d.Sanitized().Validate(); err != nil {
			t.Errorf("sanitized: %v", err)
		}
	}
}

// manyNeeds has so many names.
func manyNeeds(n int) map[string]time.Duration {
	needs := map[string]time.Duration{}
	for i := range n {
		needs[fmt.Sprintf("%03d", i)] = time.Duration(i + 1)
	}
	return needs
}

// decisions draws anything that the type can hold.
func decisions(t *rapid.T, label string) ControlDecision {
	float := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, 1, -0.1, 1.1}))
	return ControlDecision{
		TargetConcurrency: rapid.Int().Draw(t, label+"target"),
		Parked:            rapid.Int().Draw(t, label+"parked"),
		ShedProbability:   float.Draw(t, label+"shed"),
		ValidFor:          time.Duration(rapid.Int64().Draw(t, label+"valid")),
		Expected:          time.Duration(rapid.Int64().Draw(t, label+"expected")),
		Needs: rapid.MapOfN(rapid.StringMatching("[a-z]{0,3}"),
			rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.Int64().Draw(t, "need")) }), -1, 80).Draw(t,
			label+"needs"),
		Parts: map[string]Part{"a": {rapid.Int().Draw(t, label+"part"),
			time.Duration(rapid.Int64().Draw(t, label+"its wait")), []Reason{NewReason("code", "", 0, Hold)}}},
		Yields:  rapid.Int().Draw(t, label+"yields"),
		Reasons: []Reason{NewReason("code", "signal", float.Draw(t, label+"value"), Hold)},
	}
}

func TestPropertySanitizedIsValidAndOwnsItsMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := decisions(t, "")
		if rapid.Bool().Draw(t, "stale") {
			stale := decisions(t, "stale ")
			stale.Stale = &d // even a circle
			d.Stale = &stale
		}
		s := d.Sanitized()
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		for name, need := range s.Needs {
			if need <= 0 || need != d.Needs[name] {
				t.Fatalf("%q needs %v of %v", name, need, d.Needs[name])
			}
		}
		if d.Validate() == nil && fmt.Sprint(s.TargetConcurrency, s.Parked, s.ShedProbability, s.ValidFor, s.Expected, s.Yields) !=
			fmt.Sprint(d.TargetConcurrency, d.Parked, d.ShedProbability, d.ValidFor, d.Expected, d.Yields) {
			t.Fatalf("a valid decision changed from %+v to %+v", d, s)
		}
		if s.Stale != nil && (s.Stale == d.Stale || s.Stale.Stale != nil || s.Stale.ValidFor != 0) {
			t.Fatalf("stale decision %+v", s.Stale)
		}
		d.Reasons[0], d.Parts["a"].Reasons[0], d.Parts["b"] = NewReason("other", "", 0, Hold), NewReason("other", "", 0, Hold), Part{}
		if s.Reasons[0].Code() != "code" || s.Parts["a"].Reasons[0].Code() != "code" || len(s.Parts) != 1 {
			t.Fatal("the copy shares its reasons")
		}
		for name, need := range s.Needs {
			if d.Needs[name] = 0; s.Needs[name] != need {
				t.Fatal("the copy shares its needs")
			}
		}
	})
}

func TestReasonShowsAllOfItself(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, nil))
	for _, r := range []Reason{
		NewReason("queueing", "lag_p90_seconds", 0.012, Tighten),
		NewReason("quiet", "utilization", math.NaN(), Relax),
		NewReason("odd", "x", 1, "odd"),
	} {
		log.Info(r.Code(), "reason", r)
	}
	for _, want := range []string{
		"reason.code=queueing reason.signal=lag_p90_seconds reason.value=0.012 reason.direction=tighten",
		"reason.value=NaN reason.direction=relax", "reason.direction=odd",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q lacks %q", b.String(), want)
		}
	}
}

func ExampleNewReason() {
	r := NewReason("queueing", "lag_p90_seconds", 0.012, Tighten)
	fmt.Println(r.Code())
	fmt.Println(r)
	// Output:
	// queueing
	// queueing: lag_p90_seconds=0.012 (tighten)
}

func ExampleControlDecision_Validate() {
	d := ControlDecision{TargetConcurrency: 10, ShedProbability: math.NaN()}
	fmt.Println(d.Validate())
	fmt.Println(d.Sanitized().ShedProbability)
	// Output:
	// warden: decision.ShedProbability is NaN; allowed: 0 to 1
	// 0
}

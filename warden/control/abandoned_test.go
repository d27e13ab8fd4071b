// SPDX-License-Identifier: Apache-2.0

// C17 against the modelled service: executions that their deadline ends while their work goes on.

package control_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// proxy is a dependency of four slots of 40 ms that does not notice when somebody has left, with so many times the users it can
// serve.
func proxy(seed uint64, load float64) *model {
	m := newModel(seed)
	m.slots, m.took, m.spread, m.timeout = 4, 0.04, 1, 0.4
	m.offered = 4 * load
	return m
}

// Cold, and from a limit at which nothing is ever answered, the dependency comes to do what it can for users who are still there.
func TestWorkThatOutlivesItsSlot(t *testing.T) {
	for _, start := range []int{16, 70} {
		for _, load := range []float64{2, 4} {
			for seed := range uint64(20) {
				c, m := mustNew(t, control.Config{Processors: 2, Initial: start}), proxy(seed, load)
				_, d := m.drive(c, 20, begin(c))
				m.answers = 0
				m.drive(c, 20, d)
				if m.answers < 9*200 {
					t.Errorf(
						"C17: from %d, %g times the load, seed %d: %d of 2000 that are possible are answered; %v",
						start, load, seed, m.answers, d.Reasons,
					)
				}
			}
		}
	}
}

// Where most deadlines are shorter than the work, a lower limit helps nobody, and does not stay.
func TestHalvedInVain(t *testing.T) {
	for seed := range uint64(20) {
		c, m := mustNew(t, control.Config{Processors: 2}), newModel(seed)
		m.took, m.spread, m.timeout, m.offered = 0.1, 0.9, 0.08, 60
		m.drive(c, 20, begin(c))
		targets, d := m.drive(c, 60, decision.ControlDecision{TargetConcurrency: 16})
		slices.Sort(targets)
		if most := 60 * 0.7; float64(targets[len(targets)/4]) < most {
			t.Errorf(
				"C17: seed %d: a quarter of the time the limit is at most %d, and %.0f have room; %v",
				seed, targets[len(targets)/4], most, d.Reasons,
			)
		}
	}
}

// While no more are abandoned than completed, decisions are as if nobody had been there.
func TestPropertyAbandonedSaysNothingOfTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		with, without, now := mustNew(t, control.Config{Processors: 2}), mustNew(t, control.Config{Processors: 2}), clock{}
		for range rapid.IntRange(1, 200).Draw(t, "samples") {
			s := quiet()
			s.Service = executed(
				time.Duration(rapid.IntRange(1, 400).Draw(t, "ms"))*time.Millisecond,
				rapid.IntRange(1, 32).Draw(t, "count"), rapid.Float64Range(0, 100).Draw(t, "concurrency"),
			)
			s = now.next(s)
			b := without.Step(s)
			s.Service.Abandoned = rapid.Uint64Range(0, s.Service.Count).Draw(t, "abandoned")
			s.Service.AbandonedTime = time.Duration(
				s.Service.Concurrency * rapid.Float64Range(0, 0.5).Draw(t, "their share") * float64(tick),
			)
			if diff := cmp.Diff(b, with.Step(s), cmp.Comparer(func(a, b decision.Reason) bool { return a == b })); diff != "" {
				t.Fatalf("C17: executions that were abandoned change the decision (-without +with)\n%s", diff)
			}
		}
	})
}

// Samples in which all are abandoned halve the limit, say why, and teach no time.
func TestAbandonedIsSaid(t *testing.T) {
	c, now := mustNew(t, control.Config{Processors: 2, Initial: 64}), clock{}
	d, said := begin(c), 0
	for range 100 {
		s := quiet()
		s.Service = monitor.Service{
			Concurrency: float64(d.TargetConcurrency), Running: d.TargetConcurrency,
			Abandoned: uint64(d.TargetConcurrency), AbandonedTime: time.Duration(d.TargetConcurrency) * tick,
		}
		d = c.Step(now.next(s))
		for _, r := range d.Reasons {
			if strings.HasPrefix(r.String(), "abandoned: service_abandoned=1 (tighten)") {
				said++
			}
		}
	}
	if d.TargetConcurrency != 1 || d.Expected != 0 || said == 0 {
		t.Errorf(
			"C17: after only abandoned executions the limit is %d, want 1; %v are expected, want none; said %d times",
			d.TargetConcurrency, d.Expected, said,
		)
	}
}

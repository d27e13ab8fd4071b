// SPDX-License-Identifier: Apache-2.0

// Compartments that a controller judges one by one: what they report, and whom a decision lowers (B14).

package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// A decision about one compartment lowers its Max and bounds its wait. The others have what they had, and get none of what it may
// not use.
func TestADecisionAboutOneCompartment(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s := mustNew(t, Config{Total: 10, Compartments: []CompartmentConfig{
			{Name: "slow", Guaranteed: 6, Lendable: 2, MaxQueue: 9}, {Name: "other", Guaranteed: 2, Max: 10, MaxQueue: 9},
		}})
		slow, other := s.Compartment("slow"), s.Compartment("other")
		why := decision.NewReason("service_slow", "service_inflation", 3, decision.Tighten)
		d := bound(1, 10)
		d.MaxWait = time.Hour
		d.Parts = map[string]decision.Part{"slow": {TargetConcurrency: 2, MaxWait: time.Minute, Reasons: []decision.Reason{why}},
			"unknown": {}}
		s.Apply(d)
		w.fill(slow, 2)
		waits := w.send(slow, "waits")
		w.fill(other, 9)
		a, b := slow.Snapshot(), other.Snapshot()
		if a.InFlight != 2 || a.Effective.Max != 2 || a.Effective.Guaranteed != 6 || b.InFlight != 6 || b.Effective.Max != 10 ||
			s.Snapshot().EffectiveTotal != 10 {
			t.Errorf("B14: %+v\n%+v", a, b)
		}
		if p := slow.pool.rule; p.MaxWait != time.Minute || p.Reasons[len(p.Reasons)-1] != why {
			t.Errorf("B14: the slow one's rule is %+v", p)
		}
		if p := other.pool.rule; p.MaxWait != 0 || len(p.Reasons) != 1 {
			t.Errorf("B14: the other one's rule is %+v", p)
		}
		w.fill(slow, 8)
		_, err := Do(t.Context(), slow, nothing)
		var r *decision.Rejection
		if !errors.As(err, &r) || r.Bound != decision.BoundTarget || r.Limit != 2 {
			t.Errorf("B14: %v", err)
		}
		d.Seq, d.Parts = 2, nil
		s.Apply(d)
		sleep(time.Millisecond)
		// what may be lent is
		if c := slow.Snapshot(); !waits.ended.Load() && !waits.runs() || c.InFlight != 4 || c.Effective.Max != 6 {
			t.Errorf("B14: afterwards %+v", c)
		}
	})
}

// Every execution is reported once, as what it was; a plan tells the new bounds.
func TestCompartmentsFeedARecorder(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s := mustNew(t, Config{Total: 10, Compartments: []CompartmentConfig{
			{Name: "a", Guaranteed: 4}, {Name: "b", Guaranteed: 3, Timeout: time.Second}, {Name: "none", Max: 1},
		}})
		sampler := must(monitor.New())(t)
		recorder := sampler.Recorder()
		s.Feed(recorder)
		run := func(name string, f func(context.Context) (int, error)) {
			_, _ = Do(t.Context(), s.Compartment(name), f)
		}
		run("a", func(context.Context) (int, error) { time.Sleep(time.Second); return 0, errors.New("failed") })
		run("b", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })      // timed out
		run("b", func(context.Context) (int, error) { time.Sleep(2 * time.Second); return 0, nil }) // abandoned, and done all the same
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = Do(gone, s.Compartment("none"), nothing) // rejected
		_, p, _ := s.Compartment("a").Acquire(t.Context())
		p.Discard(nil)
		if p.Release(nil) || p.Discard(nil) {
			t.Error("a permit was released twice")
		}
		running := w.send(s.Compartment("a"), "runs")
		sleep(time.Second)
		sample := sampler.Sample()
		var got strings.Builder
		for _, p := range sample.Parts {
			v := p.Service
			fmt.Fprintf(&got, "%s of %d: %d ended, %d abandoned, %d run; ", p.Name, p.Limit, v.Count, v.Abandoned, v.Running)
		}
		if want := "a of 4: 1 ended, 0 abandoned, 1 run; b of 3: 1 ended, 1 abandoned, 0 run; none of 1: 0 ended, 0 abandoned, 0 run; "; got.String() != want {
			t.Errorf("B14: %s\nwant %s", got.String(), want)
		}
		if v := sample.Service; v.Count != 2 || v.Abandoned != 1 || v.Running != 1 || v.P50 == 0 {
			t.Errorf("B14: together %+v", v)
		}
		plan := s.Plan()
		plan.Compartments[0].Max = 6
		_ = must(s.Resize(plan))(t)
		s.Feed(recorder) // once more changes nothing
		w.let(running)
		sleep(time.Second)
		if parts := sampler.Sample().Parts; len(parts) != 3 || parts[0].Limit != 6 || parts[0].Service.Count != 1 ||
			parts[2].Name != "none" {
			t.Errorf("B14: after a resize: %+v", parts)
		}
		s.Feed(nil)
		run("a", nothing)
		sleep(time.Second)
		if v := sampler.Sample().Parts[0].Service; v.Count != 0 {
			t.Errorf("B14: it still reports: %+v", v)
		}
		var zero *Set
		zero.Feed(recorder)
	})
}

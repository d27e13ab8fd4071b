// SPDX-License-Identifier: Apache-2.0

// What a load report says (H29): of one to two seconds, within its ranges whatever is measured, nothing once samples are missing.

package warden

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// TestPropertyLoadIsAnAverage: the model keeps every sample, and a Load is the average of the last of them, as many as cover one
// to two seconds, and what the samples were late.
func TestPropertyLoadIsAnAverage(t *testing.T) {
	type sampled struct {
		from, at             time.Duration
		busy, served, failed float64
	}
	rapid.Check(t, func(rt *rapid.T) {
		var m loadMeter
		var all []sampled
		var l limiter.Stats
		for range rapid.IntRange(1, 60).Draw(rt, "samples") {
			gap := time.Duration(rapid.IntRange(10, 700).Draw(rt, "ms")) * time.Millisecond
			if rapid.IntRange(0, 9).Draw(rt, "late") == 0 {
				gap *= 10
			}
			use := rapid.Float64Range(0, 1).Draw(rt, "use")
			executed, rejected := rapid.Uint64Range(0, 50).Draw(rt, "executed"), rapid.Uint64Range(0, 50).Draw(rt, "rejected")
			abandoned := rapid.Uint64Range(0, executed).Draw(rt, "abandoned")
			bad := rapid.Uint64Range(0, executed-abandoned).Draw(rt, "failed")
			l.Executed, l.Rejected, l.Failed, l.Target, l.Mode = l.Executed+executed, l.Rejected+rejected, l.Failed+bad, 10, decision.DryRun
			s := monitor.Sample{
				Utilization: monitor.Reading{Value: use, OK: true},
				Service:     monitor.Service{Count: executed - abandoned, Abandoned: abandoned},
			}
			one := sampled{at: gap, busy: use, served: float64(executed - abandoned), failed: float64(rejected + bad)}
			if n := len(all); n > 0 {
				one.from, one.at = all[n-1].at, all[n-1].at+gap
			}
			all = append(all, one)
			got := m.add(one.at, &s, &l)

			fits := false
			var sum sampled
			longest := time.Duration(0)
			for i := len(all) - 1; i >= 0 && !fits; i-- {
				longest = max(longest, all[i].at-all[i].from)
				sum.busy += all[i].busy * (all[i].at - all[i].from).Seconds()
				sum.served, sum.failed = sum.served+all[i].served, sum.failed+all[i].failed
				over := one.at - all[i].from
				want := Load{sum.busy / over.Seconds(), sum.served / over.Seconds(), sum.failed / over.Seconds()}
				least, most := min(time.Second, one.at), 2*(time.Second+longest)
				fits = over >= least && over <= most && cmp.Equal(want, got.Load, cmpopts.EquateApprox(0, 1e-9))
			}
			if !fits || got.at != one.at {
				rt.Fatalf("H29: %+v is no average of the last second or two of %+v", got, all)
			}
		}
	})
}

// TestPropertyLoadKeepsItsRanges: whatever a sampler says.
func TestPropertyLoadKeepsItsRanges(t *testing.T) {
	number := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, -1, 0.5, 1, 7, math.NaN(), math.Inf(1), math.Inf(-1)}))
	rapid.Check(t, func(rt *rapid.T) {
		var m loadMeter
		at := time.Duration(0)
		for range rapid.IntRange(1, 30).Draw(rt, "samples") {
			at += time.Duration(rapid.IntRange(0, 1000).Draw(rt, "ms")) * time.Millisecond
			reading := func(of string) monitor.Reading {
				return monitor.Reading{Value: number.Draw(rt, of), OK: rapid.Bool().Draw(rt, of+" known")}
			}
			s := monitor.Sample{
				Utilization: reading("utilization"), Share: reading("share"),
				Service: monitor.Service{Count: rapid.Uint64().Draw(rt, "count"), Abandoned: rapid.Uint64().Draw(rt, "abandoned")},
				Pools: []monitor.PoolReading{{PoolStats: monitor.PoolStats{
					InUse: rapid.Int().Draw(rt, "in use"), Max: rapid.Int().Draw(rt, "max"),
				}}},
			}
			l := limiter.Stats{Target: rapid.IntRange(0, 5).Draw(rt, "target")}
			l.Mode = decision.Mode(rapid.IntRange(0, 2).Draw(rt, "mode"))
			l.Running, l.Queued = rapid.IntRange(0, 9).Draw(rt, "running"), rapid.IntRange(0, 1).Draw(rt, "queued")
			l.Executed, l.Rejected = m.last.Executed+rapid.Uint64Range(0, 9).Draw(rt, "more"), m.last.Rejected
			got := m.add(at, &s, &l)
			for _, v := range []float64{got.Utilization, got.Served, got.Failed} {
				if !(v >= 0) || math.IsInf(v, 0) || got.Utilization > 1 {
					rt.Fatalf("H29: %+v after %+v and %+v", got, s, l)
				}
			}
		}
	})
}

// TestLoadIsThatOfTheBottleneck: what is used most counts, and a limit counts by whether it binds.
func TestLoadIsThatOfTheBottleneck(t *testing.T) {
	enforced := func(running, target, queued int) (l limiter.Stats) {
		l.Running, l.Target, l.Queued = running, target, queued
		return l
	}
	dry := enforced(9, 4, 0)
	dry.Mode = decision.DryRun
	reading := func(v float64) monitor.Reading { return monitor.Reading{Value: v, OK: true} }
	pool := func(inUse int, part, problem string) []monitor.PoolReading {
		return []monitor.PoolReading{{Part: part, Problem: problem, PoolStats: monitor.PoolStats{InUse: inUse, Max: 10}}}
	}
	for name, c := range map[string]struct {
		s    monitor.Sample
		l    limiter.Stats
		want float64
	}{
		"idle":                        {monitor.Sample{}, enforced(0, 16, 0), 0},
		"processors":                  {monitor.Sample{Utilization: reading(0.4)}, enforced(1, 16, 0), 0.4},
		"a fifth of them, all used":   {monitor.Sample{Utilization: reading(0.2), Share: reading(0.2)}, enforced(1, 16, 0), 1},
		"half of them, half used":     {monitor.Sample{Utilization: reading(0.25), Share: reading(0.5)}, enforced(1, 16, 0), 0.5},
		"a wide limit":                {monitor.Sample{Utilization: reading(0.4)}, enforced(8, 16, 0), 0.4},
		"work elsewhere":              {monitor.Sample{Utilization: reading(0.4), Remote: true}, enforced(8, 16, 0), 0},
		"a pool":                      {monitor.Sample{Utilization: reading(0.4), Pools: pool(7, "", "")}, enforced(1, 9, 0), 0.7},
		"a compartment's pool":        {monitor.Sample{Pools: pool(7, "orders", "")}, enforced(8, 16, 0), 0},
		"a pool that cannot be read":  {monitor.Sample{Pools: pool(7, "", "blocked")}, enforced(8, 16, 0), 0},
		"the limit, all used":         {monitor.Sample{Utilization: reading(0.4)}, enforced(16, 16, 0), 1},
		"the limit, tasks wait":       {monitor.Sample{Utilization: reading(0.4)}, enforced(12, 16, 1), 0.75},
		"more than a limit that fell": {monitor.Sample{}, enforced(30, 10, 5), 1},
		"nothing may start":           {monitor.Sample{}, enforced(0, 0, 3), 0},
		"a dry run":                   {monitor.Sample{Utilization: reading(0.4)}, dry, 0.4},
	} {
		if got := new(loadMeter).add(time.Second, &c.s, &c.l).Utilization; math.Abs(got-c.want) > 1e-9 {
			t.Errorf("H29: %s: utilization %v, want %v", name, got, c.want)
		}
	}
	var m loadMeter
	full, half, at := enforced(10, 10, 5), enforced(5, 10, 0), time.Second
	m.add(at, &monitor.Sample{}, &full)
	for range 300 {
		at += 100 * time.Millisecond
		m.add(at, &monitor.Sample{}, &half)
	}
	if got := m.load().Utilization; math.Abs(got-0.5/math.E) > 0.02 {
		t.Errorf("H29: 30 s after the limit last bound, half of it counts as %v, want half of 1/e", got)
	}
}

// measured is a sampler that measures what it is told.
type measured struct{ is monitor.Sample }

func (m measured) Sample() monitor.Sample { return m.is }

// TestLoad: as of the last sample, and zero before the first, when the process is idle, and when samples are missing.
func TestLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(parts)
		w := mustNew(t, Config{Controller: p, Sampler: measured{monitor.Sample{Utilization: monitor.Reading{Value: 0.5, OK: true}}}})
		if got := w.Load(); got != (Load{}) {
			t.Errorf("H29: before the first sample: %+v", got)
		}
		serve := func() {
			for range 30 {
				time.Sleep(100 * time.Millisecond)
				use(t, w)
				use(t, w)
			}
		}
		serve()
		if diff := cmp.Diff(Load{0.5, 20, 0}, w.Load(), cmpopts.EquateApprox(0.05, 0)); diff != "" {
			t.Errorf("H29: at 20 a second: %s", diff)
		}
		if n := testing.AllocsPerRun(100, func() { w.Load() }); n != 0 {
			t.Errorf("H29: Load allocates %v times", n)
		}
		for range 30 { // nobody comes, but it goes on sampling
			time.Sleep(100 * time.Millisecond)
			w.SampleIfDue()
		}
		if got := w.Load(); got.Served != 0 {
			t.Errorf("H29: idle for three seconds: %+v", got)
		}
		serve()
		time.Sleep(time.Second + time.Millisecond)
		if got := w.Load(); got != (Load{}) {
			t.Errorf("H29: a second after the last sample: %+v", got)
		}
		p.broken = "controller"
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			use(t, w)
		}
		if got := w.Load(); got != (Load{}) {
			t.Errorf("H29: two seconds without a decision: %+v", got)
		}
	})
	for _, w := range []*Warden{nil, {}} {
		if got := w.Load(); got != (Load{}) {
			t.Errorf("H29: without a warden: %+v", got)
		}
	}
}

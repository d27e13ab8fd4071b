// SPDX-License-Identifier: Apache-2.0

// The law over any sample that can be written down: properties of single steps from states that can be reached.

package control_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
	"pgregory.net/rapid"
)

var (
	epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

	floats = rapid.OneOf(rapid.Float64Range(0, 1), rapid.Float64Range(0, 20), rapid.Float64(),
		rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 1}))
	delays = rapid.OneOf(rapid.Map(rapid.IntRange(0, 500), func(ms int) time.Duration {
		return time.Duration(ms) * time.Millisecond
	}),
		rapid.SampledFrom([]time.Duration{-time.Second, math.MinInt64, math.MaxInt64, time.Hour, time.Microsecond}))
	gaps = rapid.OneOf(rapid.SampledFrom([]time.Duration{100 * time.Millisecond, 10 * time.Millisecond, time.Second, 0}),
		rapid.SampledFrom([]time.Duration{-time.Second, time.Hour, math.MaxInt64}))
	counts = rapid.OneOf(rapid.Uint64Range(0, 100), rapid.SampledFrom([]uint64{0, math.MaxUint64}))
)

func reading(t *rapid.T, name string) monitor.Reading {
	return monitor.Reading{Value: floats.Draw(t, name), OK: rapid.Bool().Draw(t, name+" ok")}
}

// anySample is whatever the type can hold, mostly near what happens.
func anySample(t *rapid.T, at time.Time) monitor.Sample {
	switch rapid.IntRange(0, 9).Draw(t, "time") {
	case 0:
		at = time.Time{}
	case 1:
		at = at.Add(-time.Minute)
	case 2:
		at = at.Add(1000 * time.Hour)
	}
	s := monitor.Sample{
		At: at, Gap: gaps.Draw(t, "gap"),
		Lag: monitor.Lag{
			P50: delays.Draw(t, "p50"), P90: delays.Draw(t, "p90"), P99: delays.Draw(t, "p99"), Count: counts.Draw(t, "lags"),
		},
		Utilization: reading(t, "utilization"), Runnable: reading(t, "runnable"), Throttled: reading(t, "throttled"),
		Share: reading(t, "share"),
		Service: monitor.Service{
			P50: delays.Draw(t, "service p50"), P90: delays.Draw(t, "service p90"), Count: counts.Draw(t, "executions"),
			Throughput: floats.Draw(t, "throughput"), Concurrency: floats.Draw(t, "concurrency"),
		},
	}
	for i := range rapid.IntRange(0, len(s.Service.Times)).Draw(t, "times") {
		s.Service.Times[i] = delays.Draw(t, "time")
	}
	s.Service.Abandoned = counts.Draw(t, "abandoned")
	s.Service.Running = rapid.IntRange(-1, 1000).Draw(t, "running")
	for i := range rapid.IntRange(0, 3).Draw(t, "pools") {
		s.Pools = append(s.Pools, monitor.PoolReading{
			Name: string(rune('a' + i)),
			PoolStats: monitor.PoolStats{
				InUse: rapid.IntRange(-2, 20).Draw(t, "in use"),
				Max:   rapid.IntRange(-2, 20).Draw(t, "max"), Waiting: reading(t, "waiting"),
			},
			Problem: rapid.SampledFrom([]string{"", "", "", "blocked"}).Draw(t, "problem"),
			Part:    rapid.SampledFrom([]string{"", "", "a", "z"}).Draw(t, "of"),
		})
	}
	s.Parts = parts(t)
	s.Memory = anyMemory(t)
	s.Remote = rapid.IntRange(0, 9).Draw(t, "remote") == 0
	return s
}

// anyMemory is whatever the type can hold, mostly none.
func anyMemory(t *rapid.T) monitor.Memory {
	bytes := rapid.OneOf(rapid.SampledFrom([]uint64{0, 1, 1 << 30, math.MaxUint64}), rapid.Uint64Range(0, 1<<31))
	return monitor.Memory{
		Limit: rapid.OneOf(rapid.Just(uint64(0)), bytes).Draw(t, "memory"), Soft: rapid.Bool().Draw(t, "soft"),
		Live: bytes.Draw(t, "live"), Growth: floats.Draw(t, "growth"), Collections: rapid.Uint64Range(0, 2).Draw(t, "collections"),
	}
}

// parts are none, or compartments in any state.
func parts(t *rapid.T) (all []monitor.Part) {
	if rapid.Bool().Draw(t, "whole") {
		return nil
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "parts") {
		p := monitor.Part{Name: string(rune('a' + i)), Limit: rapid.IntRange(-1, 50).Draw(t, "limit")}
		p.Service = monitor.Service{
			Count: counts.Draw(t, "executions"), Throughput: floats.Draw(t, "throughput"),
			Concurrency: floats.Draw(t, "concurrency"),
			Abandoned:   counts.Draw(t, "abandoned"), AbandonedTime: delays.Draw(t, "abandoned time"),
			Running: rapid.IntRange(-1, 60).Draw(t, "running"), Long: rapid.IntRange(-1, 60).Draw(t, "long"),
		}
		took := delays.Draw(t, "time")
		for k := range p.Service.Times {
			p.Service.Times[k] = took / 32 * time.Duration(k+16)
		}
		all = append(all, p)
	}
	return all
}

func configs(t *rapid.T) control.Config {
	cfg := control.Config{
		Processors: rapid.SampledFrom([]int{1, 2, 8, 128}).Draw(t, "processors"),
		Min:        rapid.IntRange(0, 20).Draw(t, "min"),
	}
	if rapid.Bool().Draw(t, "bounded") {
		cfg.Max = cfg.Min + rapid.IntRange(1, 200).Draw(t, "max")
	}
	return cfg
}

func mustNew(t interface{ Fatal(...any) }, cfg control.Config) *control.Controller {
	c, err := control.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// plausible is a sample as a service in trouble might give.
func plausible(t *rapid.T, at time.Time) monitor.Sample {
	ms := func(name string, most int) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(t, name)) * time.Millisecond
	}
	n := rapid.Float64Range(0, 40).Draw(t, "concurrency")
	s := monitor.Sample{
		At: at, Gap: 100 * time.Millisecond,
		Lag:         monitor.Lag{P50: ms("p50", 30), P90: ms("p90", 60), Count: rapid.Uint64Range(0, 100).Draw(t, "lags")},
		Utilization: monitor.Reading{Value: rapid.Float64Range(0, 1).Draw(t, "utilization"), OK: true},
		Runnable:    monitor.Reading{Value: rapid.Float64Range(0, 20).Draw(t, "runnable"), OK: true},
		Service: monitor.Service{
			P50: ms("service", 300), P90: ms("service p90", 500), Count: rapid.Uint64Range(0, 60).Draw(t, "executions"),
			Throughput: rapid.Float64Range(0, 500).Draw(t, "throughput"), Concurrency: n,
		},
	}
	for i := range s.Service.Times {
		s.Service.Times[i] = s.Service.P50 * time.Duration(i+16) / 32
	}
	s.Share = monitor.Reading{Value: rapid.Float64Range(0, 1).Draw(t, "share"), OK: rapid.Bool().Draw(t, "shared")}
	s.Service.Running = int(n)
	if rapid.IntRange(0, 2).Draw(t, "pool") == 0 {
		inUse, most := rapid.IntRange(0, 10).Draw(t, "in use"), 10
		s.Pools = []monitor.PoolReading{{Name: "a", PoolStats: monitor.PoolStats{InUse: inUse, Max: most}}}
		if rapid.Bool().Draw(t, "counts who waits") {
			s.Pools[0].Waiting = monitor.Reading{Value: rapid.Float64Range(0, 40).Draw(t, "waiting"), OK: true}
		}
	}
	s.Parts = parts(t)
	if rapid.IntRange(0, 3).Draw(t, "memory") == 0 {
		s.Memory = monitor.Memory{
			Limit: 1 << 30, Live: rapid.Uint64Range(0, 1<<30).Draw(t, "live"), Soft: true,
			Collections: rapid.Uint64Range(0, 1).Draw(t, "collections"),
		}
	}
	return s
}

// history draws the samples that lead to a state, each of them mostly repeated a few times, so that states with a memory
// are reached as well, and returns the time after them.
func history(t *rapid.T) (samples []monitor.Sample, now time.Time) {
	now = epoch
	for range rapid.IntRange(0, 8).Draw(t, "episodes") {
		var s monitor.Sample
		if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
			s = anySample(t, now)
		} else {
			s = plausible(t, now)
		}
		for range rapid.IntRange(1, 30).Draw(t, "length") {
			samples = append(samples, s)
			now = now.Add(100 * time.Millisecond)
			if !s.At.IsZero() {
				s.At = s.At.Add(100 * time.Millisecond)
			}
		}
	}
	return samples, now
}

func TestPropertyAnySample(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := configs(t)
		c := mustNew(t, cfg)
		lowest, highest := max(cfg.Min, 1), 1<<24
		if cfg.Max > 0 {
			highest = cfg.Max
		}
		before := c.Step(monitor.Sample{At: epoch})
		samples, now := history(t)
		samples = append(samples, anySample(t, now))
		for _, s := range samples {
			d := c.Step(s)
			if err := d.Validate(); err != nil {
				t.Fatal(err)
			}
			if d.TargetConcurrency < lowest || d.TargetConcurrency > highest ||
				!(d.ShedProbability >= 0 && d.ShedProbability <= 0.95) {
				t.Fatalf("target %d, shed %v", d.TargetConcurrency, d.ShedProbability)
			}
			for _, p := range s.Parts {
				if of := d.Parts[p.Name]; of.TargetConcurrency > 50 { // that none of them is below 1 is valid
					t.Fatalf("C1: %s of %d has %+v", p.Name, p.Limit, of)
				}
			}
			if d.Seq != before.Seq+1 || d.ValidFor <= 0 || d.Stale == nil || len(d.Stale.Reasons) == 0 {
				t.Fatalf("%+v", d)
			}
			// C7; that the reasons are the right ones is TestReasons.
			if len(d.Reasons) == 0 || d.Reasons[0].Code() == "" {
				t.Fatal("no reason")
			}
			before = d
		}
	})
}

// One half at a time: with no executions, and with so many that run at once. Half a task is what rounding may add to either side.
func TestPropertyBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := configs(t)
		c := mustNew(t, cfg)
		running := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(1, 1000)).Draw(t, "running")
		before := c.Step(monitor.Sample{At: epoch})
		highest := before.TargetConcurrency
		samples, now := history(t)
		for i, s := range append(samples, anySample(t, now)) {
			if s.Service.Concurrency = running; running == 0 {
				s.Service = monitor.Service{}
			}
			s.Pools, s.Memory = nil, monitor.Memory{} // they cut at once: C14, C19
			d := c.Step(s)
			was, is := float64(before.TargetConcurrency), float64(d.TargetConcurrency)
			low, high := 0.5*(was-0.5)-0.5, max(2*(was+0.5)+0.5, float64(highest))
			if running > 0 {
				low = min(low, 0.5*(math.Floor(0.2*running)-0.5)-0.5)
			} else {
				high = 2*(was+0.5) + 0.5
			}
			if is < low || is > high {
				t.Fatalf("C4: sample %d: target from %v to %v, %v run", i, was, is, running)
			}
			if step := d.ShedProbability - before.ShedProbability; math.Abs(step) > 0.5+1e-9 {
				t.Fatalf("C4: sample %d: shed from %v to %v", i, before.ShedProbability, d.ShedProbability)
			}
			before, highest = d, max(highest, d.TargetConcurrency)
		}
	})
}

func TestPropertyNotANumberIsNotRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := configs(t)
		odd, plain := mustNew(t, cfg), mustNew(t, cfg)
		samples, _ := history(t)
		for i, s := range samples {
			if rapid.Bool().Draw(t, "odd") {
				s.Service.Throughput, s.Service.Concurrency, s.Utilization = 0, 0, monitor.Reading{}
			}
			was := plain.Step(s)
			for _, value := range []*float64{&s.Service.Throughput, &s.Service.Concurrency} {
				if *value == 0 {
					*value = math.NaN()
				}
			}
			if !s.Utilization.OK {
				s.Utilization = monitor.Reading{Value: math.NaN(), OK: true}
			}
			if is := odd.Step(s); is.TargetConcurrency != was.TargetConcurrency || is.ShedProbability != was.ShedProbability {
				t.Fatalf("C1: sample %d: target %d, without NaN %d", i, is.TargetConcurrency, was.TargetConcurrency)
			}
		}
	})
}

// worse returns s with every reading that C2 speaks of the same or higher. Utilization says which half is to judge, and is among
// them where there is one half only.
func worse(t *rapid.T, s monitor.Sample, served bool) monitor.Sample {
	longer := func(d *time.Duration, name string) {
		if more := delays.Draw(t, "more "+name); more > *d {
			*d = more
		}
	}
	higher := func(r *monitor.Reading, name string) {
		if more := floats.Draw(t, "more "+name); more > r.Value {
			r.Value = more
		}
	}
	for name, d := range map[string]*time.Duration{
		"p50": &s.Lag.P50, "p90": &s.Lag.P90, "p99": &s.Lag.P99,
	} {
		longer(d, name)
	}
	if !served {
		higher(&s.Utilization, "utilization")
	}
	higher(&s.Runnable, "runnable")
	higher(&s.Throttled, "throttled")
	return s
}

func TestPropertyMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := configs(t)
		one, other := mustNew(t, cfg), mustNew(t, cfg)
		served := rapid.Bool().Draw(t, "served")
		samples, now := history(t)
		for _, s := range samples {
			if !served {
				s.Service = monitor.Service{}
			}
			one.Step(s)
			other.Step(s)
		}
		s := plausible(t, now)
		if rapid.Bool().Draw(t, "any") {
			s = anySample(t, now)
		}
		if !served {
			s.Service = monitor.Service{}
		}
		// What is no number is neither more nor less.
		for _, r := range []*monitor.Reading{&s.Utilization, &s.Runnable, &s.Throttled} {
			if math.IsNaN(r.Value) {
				r.Value = 0
			}
		}
		w := worse(t, s, served)
		better, bad := one.Step(s), other.Step(w)
		if bad.TargetConcurrency > better.TargetConcurrency || bad.ShedProbability < better.ShedProbability {
			t.Fatalf("C2: target %d, shed %v for %+v\ntarget %d, shed %v for %+v", better.TargetConcurrency, better.ShedProbability, s,
				bad.TargetConcurrency, bad.ShedProbability, w)
		}
	})
}

// One signal that no other one hides, and only that gets worse.
func TestOneSignalAlone(t *testing.T) {
	at := func(signal int, x float64, steps int) monitor.Sample {
		s := monitor.Sample{At: epoch.Add(time.Duration(steps+1) * 100 * time.Millisecond), Gap: 100 * time.Millisecond}
		switch signal {
		case 0:
			s.Runnable = monitor.Reading{Value: 20 * x, OK: true}
		case 1:
			s.Lag = monitor.Lag{P90: time.Duration(x * 40e6), Count: 100}
		case 2:
			s.Lag = monitor.Lag{P50: time.Duration(x * 20e6), P90: time.Duration(x * 20e6), Count: 100}
		default:
			s.Utilization, s.Throttled = monitor.Reading{OK: true}, monitor.Reading{Value: x, OK: true}
		}
		return s
	}
	for signal := range 4 {
		for _, steps := range []int{0, 1, 4, 12} {
			step := func(x, last float64) decision.ControlDecision {
				c := mustNew(t, control.Config{Processors: 128, Initial: 1024})
				for i := range steps {
					c.Step(at(signal, x, i))
				}
				return c.Step(at(signal, last, steps))
			}
			for x := 0.0; x < 2; x += 0.1 {
				better := step(x, x)
				for y := x + 0.1; y < 3; y += 0.1 {
					bad := step(x, y)
					if bad.TargetConcurrency > better.TargetConcurrency || bad.ShedProbability < better.ShedProbability {
						t.Fatalf("C2: signal %d after %d steps: target %d, shed %v for %v; target %d, shed %v for %v", signal, steps,
							better.TargetConcurrency, better.ShedProbability, x, bad.TargetConcurrency, bad.ShedProbability, y)
					}
					better = bad
				}
			}
		}
	}
}

func TestPropertyUtilizationAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := mustNew(t, configs(t))
		before := c.Step(monitor.Sample{At: epoch})
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			d := c.Step(monitor.Sample{
				At:          epoch.Add(time.Duration(i+1) * 100 * time.Millisecond),
				Utilization: monitor.Reading{Value: floats.Draw(t, "utilization"), OK: true},
				Runnable:    monitor.Reading{OK: true},
			})
			if d.TargetConcurrency < before.TargetConcurrency || d.ShedProbability > 0 {
				t.Fatalf("C5: target from %d to %d, shed %v", before.TargetConcurrency, d.TargetConcurrency, d.ShedProbability)
			}
			before = d
		}
	})
}

func TestPropertyReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := configs(t)
		first, again := mustNew(t, cfg), mustNew(t, cfg)
		samples, _ := history(t)
		var decided []decision.ControlDecision
		for _, s := range samples {
			decided = append(decided, first.Step(s))
		}
		for i, s := range samples {
			if diff := cmp.Diff(decided[i], again.Step(s), cmp.Comparer(func(a, b decision.Reason) bool {
				return a == b
			})); diff != "" {
				t.Fatalf("C6: decision %d (-first +again)\n%s", i, diff)
			}
		}
	})
}

func TestPropertyNoInformationRaisesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := mustNew(t, configs(t))
		samples, now := history(t)
		before := c.Step(monitor.Sample{At: epoch})
		for _, s := range samples {
			before = c.Step(s)
		}
		for range 30 {
			now = now.Add(100 * time.Millisecond)
			s := anySample(t, now)
			s.Utilization.OK, s.Runnable.OK, s.Lag.Count, s.Remote = false, false, 0, false
			d := c.Step(s)
			if d.TargetConcurrency > before.TargetConcurrency {
				t.Fatalf("C8: target from %d to %d", before.TargetConcurrency, d.TargetConcurrency)
			}
			before = d
		}
	})
}

// calm is a sample of a process that does nothing.
func calm(at time.Time) monitor.Sample {
	return monitor.Sample{
		At: at, Gap: 100 * time.Millisecond,
		Utilization: monitor.Reading{Value: 0.02, OK: true}, Runnable: monitor.Reading{OK: true},
	}
}

func TestPropertyCalmBringsItBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := control.Config{Processors: rapid.SampledFrom([]int{2, 8, 128}).Draw(t, "processors")}
		c := mustNew(t, cfg)
		full := c.Step(monitor.Sample{At: epoch}).TargetConcurrency
		samples, now := history(t)
		var known map[string]decision.Part
		for _, s := range samples {
			known = c.Step(s).Parts
		}
		var d decision.ControlDecision
		for range 160 { // 16 s, of which nobody sent a request
			now = now.Add(100 * time.Millisecond)
			s := calm(now)
			for name := range known {
				s.Parts = append(s.Parts, monitor.Part{Name: name, Limit: 40})
			}
			d = c.Step(s)
		}
		for name, p := range d.Parts {
			if p.TargetConcurrency != 40 {
				t.Fatalf("C10: %s has %+v of 40 after 160 calm samples", name, p)
			}
		}
		if d.TargetConcurrency < full || d.ShedProbability > 0 {
			t.Fatalf(
				"C10: target %d of %d, shed %v after 160 calm samples; %v",
				d.TargetConcurrency, full, d.ShedProbability, d.Reasons,
			)
		}
	})
}

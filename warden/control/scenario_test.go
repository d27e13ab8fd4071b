// SPDX-License-Identifier: Apache-2.0

// The law in situations that have a name: what it does there, and in which words.

package control_test

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

const tick = 100 * time.Millisecond

// clock numbers samples.
type clock struct{ at time.Time }

func (c *clock) next(s monitor.Sample) monitor.Sample {
	if c.at.IsZero() {
		c.at = epoch
	}
	c.at = c.at.Add(tick)
	s.At, s.Gap = c.at, tick
	return s
}

func value(v float64) monitor.Reading { return monitor.Reading{Value: v, OK: true} }

// quiet, busy and jammed are samples of processors with nothing, all and too much to do.
func quiet() monitor.Sample { return monitor.Sample{Utilization: value(0.1), Runnable: value(0)} }

func jammed() monitor.Sample {
	return monitor.Sample{
		Utilization: value(1), Runnable: value(30),
		Lag: monitor.Lag{P50: 50 * time.Millisecond, P90: 100 * time.Millisecond, Count: 100},
	}
}

func TestTightensFasterThanItRelaxes(t *testing.T) {
	c, now := mustNew(t, control.Config{Processors: 1, Initial: 512}), clock{}
	steps := func(s func() monitor.Sample, until func(d decision.ControlDecision) bool) (n int) {
		for !until(c.Step(now.next(s()))) {
			if n++; n > 1000 {
				t.Fatal("C3: never")
			}
		}
		return n
	}
	down := steps(jammed, func(d decision.ControlDecision) bool { return d.TargetConcurrency <= 16 })
	steps(jammed, func(d decision.ControlDecision) bool { return d.ShedProbability >= 0.9 })
	steps(jammed, func(d decision.ControlDecision) bool { return d.TargetConcurrency <= 4 })
	relent := steps(quiet, func(d decision.ControlDecision) bool { return d.ShedProbability < 0.1 })
	c, now = mustNew(t, control.Config{Processors: 1, Initial: 512}), clock{}
	shed := steps(jammed, func(d decision.ControlDecision) bool { return d.ShedProbability >= 0.9 })
	steps(quiet, func(d decision.ControlDecision) bool { return d.TargetConcurrency >= 16 })
	up := steps(quiet, func(d decision.ControlDecision) bool { return d.TargetConcurrency >= 512 })
	if 4*down > 3*up || shed >= relent {
		t.Fatalf("C3: from 512 to 16 in %d steps, back in %d; shed to 0.9 in %d, back in %d", down, up, shed, relent)
	}
}

func TestReasons(t *testing.T) {
	service := func(ms, n float64) monitor.Service {
		return executed(time.Duration(ms*float64(time.Millisecond)), 25, n)
	}
	long := func(n int) monitor.Sample {
		return monitor.Sample{Utilization: value(0.1), Service: monitor.Service{
			Concurrency: float64(n), Running: n, Long: n, LongName: "GET /events", LongFor: time.Minute,
		}}
	}
	for name, tc := range map[string]struct {
		before, sample monitor.Sample
		want           []string
	}{
		"lag": {quiet(), monitor.Sample{
			Utilization: value(1), Runnable: value(1), Lag: monitor.Lag{P90: 80 * time.Millisecond, Count: 100},
		}, []string{"queueing: lag_p90_seconds=0.08 (tighten)", "service_not_fed: service_count=0 (hold)"}},
		"lag p50": {quiet(), monitor.Sample{
			Utilization: value(1), Lag: monitor.Lag{P50: 40 * time.Millisecond, P90: 8 * time.Millisecond, Count: 100},
		}, []string{"queueing: lag_p50_seconds=0.04 (tighten)"}},
		"runnable": {
			quiet(),
			monitor.Sample{Utilization: value(1), Runnable: value(40)}, []string{"queueing: runnable_per_processor=40 (tighten)"},
		},
		"throttled": {
			quiet(),
			monitor.Sample{Utilization: value(1), Throttled: value(0.8)}, []string{"queueing: throttled_share=0.8 (tighten)"},
		},
		"busy": {
			quiet(), monitor.Sample{Utilization: value(0.99), Runnable: value(0)}, []string{"busy: utilization=0.99 (hold)"},
		},
		"calm": {
			quiet(), monitor.Sample{Utilization: value(0.5), Runnable: value(0)}, []string{"calm: utilization=0.5 (relax)"},
		},
		"blind":        {quiet(), monitor.Sample{}, []string{"no_information: utilization=0.1 (hold)"}},
		"not a number": {quiet(), monitor.Sample{Utilization: value(math.NaN())}, []string{"no_information: "}},
		"slow, with room": {
			monitor.Sample{Utilization: value(0.1), Service: executed(40*time.Millisecond, 1, 0.4)},
			monitor.Sample{Utilization: value(0.1), Service: executed(50*time.Millisecond, 1, 0.5)},
			[]string{"calm: utilization=0.1 (relax)", "service_slow: service_inflation=1.25"},
		},
		"slow, at the target": {
			monitor.Sample{Utilization: value(0.1), Service: service(40, 10)},
			monitor.Sample{Utilization: value(0.1), Service: service(100, 128)},
			[]string{"calm: utilization=0.1 (relax)", "service_trial: service_inflation="},
		},
		"some run for long": {
			long(20),
			long(20), []string{"calm: utilization=0.1 (relax)", "held: 20 run for long, the oldest GET /events for 1m0s (relax)"},
		},
		"more than 512 run for long": {
			long(600), long(600),
			[]string{"calm: utilization=0.1 (relax)", "held: 600 run for long, the oldest GET /events for 1m0s (hold)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, now := mustNew(t, control.Config{Processors: 16}), clock{}
			for range 16 {
				c.Step(now.next(tc.before))
			}
			var said []string
			for range 10 {
				said = said[:0]
				for _, r := range c.Step(now.next(tc.sample)).Reasons {
					said = append(said, r.String())
				}
			}
			for i, want := range tc.want {
				if i >= len(said) || !strings.HasPrefix(said[i], want) {
					t.Fatalf("C7: %q, want %q", said, tc.want)
				}
			}
		})
	}
}

// TestBusyIsNotSlow: where processors are nearly full, and executions take as long as ever, nothing is called slow (C7).
func TestBusyIsNotSlow(t *testing.T) {
	c, now := mustNew(t, control.Config{Processors: 2, Initial: 16}), clock{}
	for i := range 3000 {
		s := used(16)
		s.Utilization = value(0.93)
		for _, r := range c.Step(now.next(s)).Reasons {
			if r.Code() == "service_slow" {
				t.Fatalf("C7: sample %d: %v", i, r)
			}
		}
	}
}

// executed is so many executions of the same length.
func executed(took time.Duration, count int, n float64) monitor.Service {
	s := monitor.Service{P50: took, P90: took, Count: uint64(count), Throughput: float64(count) / tick.Seconds(), Concurrency: n}
	for i := range min(count, len(s.Times)) {
		s.Times[i] = took
	}
	return s
}

// used is a sample of a service that would take more if it were given more.
func used(n int) monitor.Sample {
	s := quiet()
	s.Service = executed(40*time.Millisecond, n*2, float64(n))
	return s
}

func TestGrowthNeedsUse(t *testing.T) {
	c, now := mustNew(t, control.Config{Processors: 2}), clock{}
	var d decision.ControlDecision
	for range 300 {
		d = c.Step(now.next(used(3)))
	}
	if d.TargetConcurrency != 16 {
		t.Fatalf("C8: target %d although 3 run", d.TargetConcurrency)
	}
	for range 35 {
		d = c.Step(now.next(used(d.TargetConcurrency)))
	}
	grown := d.TargetConcurrency
	if grown < 64 {
		t.Fatalf("C8: target %d after 3.5 s of use", grown)
	}
	// A jam, and back to where it was: that needs no use.
	for range 40 {
		d = c.Step(now.next(jammed()))
	}
	if d.TargetConcurrency > 8 {
		t.Fatalf("C8: target %d in the jam", d.TargetConcurrency)
	}
	for range 150 {
		d = c.Step(now.next(quiet()))
	}
	if d.TargetConcurrency != grown {
		t.Fatalf("C8: target %d, before the jam %d", d.TargetConcurrency, grown)
	}
}

func TestFewObservations(t *testing.T) {
	lag := func(p90 time.Duration, count uint64) int {
		c, now := mustNew(t, control.Config{Processors: 2}), clock{}
		var d decision.ControlDecision
		for range 10 {
			d = c.Step(now.next(monitor.Sample{Utilization: value(0.1), Lag: monitor.Lag{P50: p90, P90: p90, Count: count}}))
		}
		return d.TargetConcurrency
	}
	if few, many := lag(60*time.Millisecond, 1), lag(60*time.Millisecond, 100); few != 16 || many >= 16 {
		t.Errorf("C8: 60 ms: target %d by one observation, %d by a hundred", few, many)
	}
	if few := lag(time.Millisecond, 1); few != 16 {
		t.Errorf("C8: 1 ms: target %d", few)
	}
}

func TestRatesArePerSecond(t *testing.T) {
	after := func(step time.Duration, first, then monitor.Sample) int {
		c, at := mustNew(t, control.Config{Processors: 1, Initial: 400}), epoch
		var d decision.ControlDecision
		for _, s := range []monitor.Sample{first, then} {
			for end := at.Add(1200 * time.Millisecond); at.Before(end); {
				at = at.Add(step)
				s.At, s.Gap = at, step
				d = c.Step(s)
			}
		}
		return d.TargetConcurrency
	}
	for name, then := range map[string]monitor.Sample{"down": jammed(), "up": quiet()} {
		often, seldom := after(20*time.Millisecond, jammed(), then), after(80*time.Millisecond, jammed(), then)
		if ratio := float64(often) / float64(seldom); ratio < 0.75 || ratio > 1.33 {
			t.Errorf("C8: %s: target %d with a sample every 20 ms, %d with one every 80", name, often, seldom)
		}
	}
}

func TestFloorOfProcessors(t *testing.T) {
	told, reads, now := mustNew(t, control.Config{Processors: 4}), mustNew(t, control.Config{Initial: 64}), clock{}
	for _, resized := range []struct {
		to   float64
		want int
	}{{32, 32}, {4, 4}, {2.5, 3}, {0, 3}, {1, 1}} { // 0 says nothing
		var fixed, follows decision.ControlDecision
		for range 100 {
			s := now.next(jammed())
			s.Processors = resized.to
			fixed, follows = told.Step(s), reads.Step(s)
		}
		if fixed.TargetConcurrency != 4 {
			t.Fatalf("target %d: below one task per processor, processors idle", fixed.TargetConcurrency)
		}
		if follows.TargetConcurrency != resized.want {
			t.Fatalf("C25: resized to %v processors, target %d, want %d", resized.to, follows.TargetConcurrency, resized.want)
		}
	}
}

func TestStaleIsOneStepDown(t *testing.T) {
	c, now := mustNew(t, control.Config{Processors: 2, ValidFor: 3 * time.Second}), clock{}
	d := c.Step(now.next(quiet()))
	if d.ValidFor != 3*time.Second || d.Stale == nil || d.Stale.TargetConcurrency != 11 ||
		d.Stale.Reasons[0].Code() != "control_silent" {
		t.Fatalf("%+v, stale %+v", d, d.Stale)
	}
}

func TestYieldsGrowWithPressure(t *testing.T) {
	c, now := mustNew(t, control.Config{Processors: 2}), clock{}
	few := c.Step(now.next(quiet())).Yields
	var many int
	for range 20 {
		many = c.Step(now.next(jammed())).Yields
	}
	if few < 2 || many <= few || many > 64 {
		t.Fatalf("%d yields when calm, %d when jammed", few, many)
	}
}

func TestConfig(t *testing.T) {
	for want, cfg := range map[string]control.Config{
		"Config.Min is -1":              {Min: -1},
		"Config.Max is 3":               {Min: 4, Max: 3},
		"Config.Max is -1":              {Max: -1},
		"Config.Initial is 9":           {Max: 8, Initial: 9},
		"Config.Initial is -2":          {Initial: -2},
		"Config.Processors is -1":       {Processors: -1},
		"Config.Processors is 16777217": {Processors: 1<<24 + 1},
		"Config.Lag is -1ns":            {Lag: -1},
		"Config.ValidFor is -1s":        {ValidFor: -time.Second},
	} {
		c, err := control.New(cfg)
		var invalid *decision.InvalidError
		if c != nil || !errors.Is(err, decision.ErrInvalid) || !errors.As(err, &invalid) ||
			!strings.Contains(err.Error(), want+"; allowed: ") {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
	for _, cfg := range []control.Config{{}, {Max: 4}, {Min: 100}, {Min: 1 << 20}, {Initial: 1 << 20}, {Processors: 1 << 24}} {
		if _, err := control.New(cfg); err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func TestRaceStepsTakeTurns(t *testing.T) {
	c := mustNew(t, control.Config{})
	var all sync.WaitGroup
	var mu sync.Mutex
	seen := map[uint64]bool{}
	for range 8 {
		all.Go(func() {
			for i := range 50 {
				s := jammed()
				s.At = epoch.Add(time.Duration(i) * tick)
				d := c.Step(s)
				mu.Lock()
				seen[d.Seq] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(seen) != 400 || !seen[400] {
		t.Fatalf("C6: %d decisions of 400", len(seen))
	}
}

// TestBurstsAndTurns tells waiting that the target causes from waiting that it does not.
func TestBurstsAndTurns(t *testing.T) {
	short := monitor.Lag{P50: 10 * time.Microsecond, P90: 2 * time.Millisecond, Count: 100}
	turns := monitor.Lag{P50: 2 * time.Millisecond, P90: 2 * time.Millisecond, Count: 100}
	long := monitor.Lag{P50: 10 * time.Microsecond, P90: 15 * time.Millisecond, Count: 100}
	for name, tc := range map[string]struct {
		lag         monitor.Lag
		runnable    float64
		utilization float64
		cut         bool
	}{
		"a burst arrives":                      {short, 20, 1, false},
		"tasks share a processor in turns":     {turns, 20, 0.9, true},
		"a burst is waited for":                {long, 0, 0.85, false},
		"the target causes the same wait":      {long, 0, 1, true},
		"few delays, and many wait for a turn": {monitor.Lag{P90: time.Millisecond, Count: 1}, 20, 0.9, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := mustNew(t, control.Config{Processors: 1, Initial: 32})
			now := clock{}
			var d decision.ControlDecision
			for range 50 {
				d = c.Step(
					now.next(monitor.Sample{Lag: tc.lag, Runnable: value(tc.runnable), Utilization: value(tc.utilization)}),
				)
			}
			if (d.TargetConcurrency < 32) != tc.cut {
				t.Errorf("target %d after 5 s: %v", d.TargetConcurrency, d.Reasons)
			}
		})
	}
}

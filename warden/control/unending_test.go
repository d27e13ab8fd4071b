// Work that does not end: the exception of C8.

package control_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// held is a sample of idle processors, of which so many executions ran all the time and none ended.
func held(n float64) monitor.Sample {
	s := quiet()
	s.Service.Concurrency = n
	return s
}

// pooling is a sample of 16 tasks of which none ended, while ten of ten connections are in use and so many wait for one.
func pooling(wait float64) monitor.Sample {
	s := held(1000)
	s.Service.Running = 16
	s.Pools = []monitor.PoolReading{{Name: "a", PoolStats: monitor.PoolStats{InUse: 10, Max: 10, Waiting: value(wait)}}}
	return s
}

// What a raise adds stays within 64 of what executions have made room for, however often it comes back, and within Max.
func TestPropertyRaiseIsBounded(t *testing.T) {
	raised := false
	rapid.Check(t, func(t *rapid.T) {
		cfg := control.Config{Processors: 2, Initial: rapid.IntRange(1, 40).Draw(t, "initial")}
		if rapid.Bool().Draw(t, "bounded") {
			cfg.Max = cfg.Initial + rapid.IntRange(0, 100).Draw(t, "room")
		}
		c, now := mustNew(t, cfg), clock{}
		d, ended := begin(c), 0
		for range rapid.IntRange(1, 6).Draw(t, "episodes") {
			for range rapid.IntRange(0, 150).Draw(t, "silent") {
				d = c.Step(now.next(held(float64(d.TargetConcurrency))))
				raised = raised || strings.Contains(fmt.Sprint(d.Reasons), "nothing_ends")
				if most := float64(cfg.Initial + ended + 64); float64(d.TargetConcurrency) > most || cfg.Max > 0 && d.TargetConcurrency > cfg.Max {
					t.Fatalf("C8: target %d from %d after %d executions, at most %d", d.TargetConcurrency, cfg.Initial, ended, cfg.Max)
				}
			}
			for range rapid.IntRange(0, 30).Draw(t, "ending") {
				n := rapid.IntRange(0, 3).Draw(t, "ended")
				s := held(float64(d.TargetConcurrency))
				s.Service = executed(rapid.SampledFrom([]time.Duration{5 * time.Millisecond, time.Second, 20 * time.Second}).Draw(t, "took"), n, s.Service.Concurrency)
				ended += n
				d = c.Step(now.next(s))
			}
		}
	})
	if !raised {
		t.Error("C8: nothing was ever raised")
	}
}

// What raises is silence alone: not an execution that ends or is discarded once a second, a slot that is free, or processors that are busy.
func TestRaisesOnlyInSilence(t *testing.T) {
	once := func(s monitor.Sample, i int, then func(*monitor.Sample)) monitor.Sample {
		if i%9 == 0 {
			then(&s)
		}
		return s
	}
	for name, tc := range map[string]struct {
		sample func(i int) monitor.Sample
		most   int
	}{
		"silence": {func(int) monitor.Sample { return held(1000) }, 80},
		"one is discarded": {func(i int) monitor.Sample {
			return once(held(1000), i, func(s *monitor.Sample) { s.Service.Discarded = 1 })
		}, 16},
		"a slot is free":     {func(int) monitor.Sample { return held(15) }, 16},
		"processors compute": {func(int) monitor.Sample { s := held(1000); s.Utilization = value(0.99); return s }, 16},
		"no times": {func(i int) monitor.Sample {
			return once(held(1000), i, func(s *monitor.Sample) { s.Service.Count = 1 })
		}, 16},
		"slow executions before": {func(i int) monitor.Sample {
			if i == 0 {
				s := held(10)
				s.Service = executed(3*time.Second, 1, 10)
				return s
			}
			return held(1000)
		}, 16},
		"tasks wait for a full pool":     {func(int) monitor.Sample { return pooling(6) }, 11},
		"nobody waits for the full pool": {func(int) monitor.Sample { return pooling(0) }, 80},
	} {
		t.Run(name, func(t *testing.T) {
			c, now := mustNew(t, control.Config{Processors: 2}), clock{}
			var d decision.ControlDecision
			for i := range 200 {
				d = c.Step(now.next(tc.sample(i)))
			}
			if d.TargetConcurrency != tc.most {
				t.Errorf("target %d after 20 s, want %d: %v", d.TargetConcurrency, tc.most, d.Reasons)
			}
		})
	}
}

// A raise goes with the executions that end or are discarded after all, and when it is no longer in use.
func TestRaiseIsWithdrawnOrConfirmed(t *testing.T) {
	for name, tc := range map[string]struct {
		then      monitor.Service
		low, high int // of the target after 3 s
	}{
		"the work was slow":       {executed(20*time.Second, 1, 80), 16, 80}, // each takes its slot with it, and makes room for one
		"its callers left":        {monitor.Service{Discarded: 1, Concurrency: 80}, 50, 50},
		"the holders are gone":    {executed(5*time.Millisecond, 1, 0.1), 16, 16},
		"short work, and holders": {executed(5*time.Millisecond, 1, 64), 80, 81},
		"much of it, and holders": {executed(5*time.Millisecond, 9, 79), 81, 110},
	} {
		t.Run(name, func(t *testing.T) {
			c, now := mustNew(t, control.Config{Processors: 2}), clock{}
			var d decision.ControlDecision
			for range 150 {
				d = c.Step(now.next(held(float64(max(16, d.TargetConcurrency)))))
			}
			if d.TargetConcurrency != 80 || !strings.Contains(fmt.Sprint(d.Reasons), "nothing_ends: service_silent_seconds=15 (hold)") {
				t.Fatalf("target %d after 15 s of silence: %v", d.TargetConcurrency, d.Reasons)
			}
			for range 30 {
				s := quiet()
				s.Service = tc.then
				d = c.Step(now.next(s))
			}
			if d.TargetConcurrency < tc.low || d.TargetConcurrency > tc.high {
				t.Errorf("target %d, want %d to %d: %v", d.TargetConcurrency, tc.low, tc.high, d.Reasons)
			}
		})
	}
}

// A trial in which nothing ends is undone, since it says nothing.
func TestSilenceEndsATrial(t *testing.T) {
	c, m := mustNew(t, control.Config{Processors: 2, Initial: 64}), crowd()
	_, d := m.drive(c, 1, begin(c))
	for steps := 0; !strings.Contains(fmt.Sprint(d.Reasons), "service_trial"); steps++ {
		before := d.TargetConcurrency
		if d = c.Step(m.sample(d.TargetConcurrency)); steps > 10_000 {
			t.Fatal("there was no trial")
		}
		if strings.Contains(fmt.Sprint(d.Reasons), "service_trial") {
			for !strings.Contains(fmt.Sprint(d.Reasons), "nothing_ends") {
				d = c.Step(m.next(held(1000)))
			}
			if d.TargetConcurrency < before || d.TargetConcurrency > before+1 {
				t.Fatalf("target %d once nothing ends, before the trial %d", d.TargetConcurrency, before)
			}
			return
		}
	}
}

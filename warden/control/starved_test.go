// SPDX-License-Identifier: Apache-2.0

// Stolen processors (C21 to C24).

package control_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// starved reports at which place of the reasons it is said, from 0; -1: nowhere.
func starved(d decision.ControlDecision) int {
	for i, r := range d.Reasons {
		if r.Code() == "starved" {
			return i
		}
	}
	return -1
}

// C21: starved is said from the smoothed share on, and only then: with a threshold for its beginning and another for its end. It
// is the first reason, unless the processors' half has a queue of our own to name.
func TestPropertyStarvedIsSaid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, now := mustNew(t, control.Config{Processors: 2}), clock{}
		smooth, on := 1.0, false
		for range rapid.IntRange(1, 8).Draw(t, "episodes") {
			s := plausible(t, epoch)
			if share := rapid.Float64Range(-0.2, 1.2).Draw(t, "share"); rapid.Bool().Draw(t, "known") {
				s.Share = value(share)
			} else {
				s.Share = monitor.Reading{}
			}
			for range rapid.IntRange(1, 40).Draw(t, "samples") {
				share := 1.0
				if s.Share.OK {
					share = min(max(s.Share.Value, 0.01), 1)
				}
				smooth += (share - smooth) * (1 - math.Exp(-0.1/0.5))
				on = smooth < 0.7 || on && smooth < 0.8
				d := c.Step(now.next(s))
				at := starved(d)
				if (at >= 0) != on && math.Abs(smooth-0.7) > 1e-9 && math.Abs(smooth-0.8) > 1e-9 {
					t.Fatalf("C21: share %v: %v", smooth, d.Reasons)
				}
				if at > 1 || at == 1 && d.Reasons[0].Code() != "queueing" {
					t.Fatalf("C21: %v", d.Reasons)
				}
				direction := "(hold)"
				if p, _ := c.Pressure(s); at == 0 && p < 0.35 {
					direction = "(relax)"
				}
				if on && !strings.HasSuffix(d.Reasons[at].String(), direction) {
					t.Fatalf("C21: %v, want %s", d.Reasons, direction)
				}
				if want := fmt.Sprintf("this one gets %.0f %%", 100*smooth); on && !strings.Contains(d.Reasons[at].String(), want) {
					t.Fatalf("C21: %v, want %q", d.Reasons, want)
				}
			}
		}
	})
}

// C22: delays and queues count in the processor time that we get: a sample with a share decides like one without, whose delays
// and runnable goroutines are multiplied by it, and whose utilization is divided by it; where all of that time is used, only the
// delays, by the square root. Without executions, where there is no floor. Times are rounded to nanoseconds, which may move a
// limit by one.
func TestPropertyDelaysCountInOwnTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := configs(t)
		stolen, whole := mustNew(t, cfg), mustNew(t, cfg)
		cfg.Processors = 0
		now, busy := epoch, 0.0
		for range rapid.IntRange(1, 8).Draw(t, "episodes") {
			share := 1 / float64(rapid.SampledFrom([]int{1, 2, 4, 16, 64}).Draw(t, "one of"))
			s := plausible(t, now)
			s.Service, s.Parts, s.Pools = monitor.Service{}, nil, nil
			s.Share = value(share)
			own := s
			own.Share = monitor.Reading{}
			own.Utilization.Value = min(own.Utilization.Value/share, 1)
			for range rapid.IntRange(1, 20).Draw(t, "samples") {
				now = now.Add(tick)
				s.At, own.At = now, now
				x := min(max((busy-0.85)/0.12, 0), 1)
				used := x * x * (3 - 2*x)
				busy += (own.Utilization.Value - busy) * (1 - math.Exp(-0.1/0.5))
				own.Lag.P50 = time.Duration(math.Pow(share, 1-used/2) * float64(s.Lag.P50))
				own.Lag.P90 = time.Duration(math.Pow(share, 1-used/2) * float64(s.Lag.P90))
				own.Runnable.Value = math.Pow(share, 1-used) * s.Runnable.Value
				got, want := stolen.Step(s), whole.Step(own)
				if starved(got) >= 0 { // one for each processor is what C4 leaves anyway
					want.TargetConcurrency = max(want.TargetConcurrency, min(got.TargetConcurrency, 128))
				}
				differ := math.Abs(float64(got.TargetConcurrency - want.TargetConcurrency))
				if differ > 1+0.001*float64(want.TargetConcurrency) || math.Abs(got.ShedProbability-want.ShedProbability) > 1e-4 {
					t.Fatalf("C22: share %v: limit %d, shed %v; in own time %d, %v", share,
						got.TargetConcurrency, got.ShedProbability, want.TargetConcurrency, want.ShedProbability)
				}
			}
		}
	})
}

// C23: while the process is starved, and however long work waits for processors, these lower the limit no further than to what
// makes use of the share: of the tasks that run by Little's law those that use no processor, the square root of their number, and
// one for each processor; all that is no more than what runs.
func TestPropertyFloorWhileStarved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		processors := rapid.SampledFrom([]int{1, 2, 8}).Draw(t, "processors")
		c, now := mustNew(t, control.Config{Processors: processors, Initial: 400}), clock{}
		took := rapid.IntRange(5, 400).Draw(t, "ms")
		usual := time.Duration(took) * time.Millisecond
		// So many run that none has a reason to run more or fewer.
		sample := func(perSecond, utilization float64, longer time.Duration) monitor.Sample {
			s := quiet()
			s.Utilization = value(utilization)
			s.Service = executed(usual+longer, max(1, int(perSecond/10)), perSecond*(usual+longer).Seconds())
			s.Service.Throughput = perSecond
			return s
		}
		var d decision.ControlDecision
		cold := rapid.Bool().Draw(t, "cold")
		for range 100 {
			if cold {
				break
			}
			d = c.Step(now.next(sample(100, 0.2, 0)))
		}
		perSecond := rapid.Float64Range(10, 200).Draw(t, "per second")
		utilization := rapid.Float64Range(0, 0.2).Draw(t, "utilization")
		longer := time.Duration(rapid.IntRange(-took/2, 400).Draw(t, "longer, ms")) * time.Millisecond
		if cold {
			longer = 0
		}
		for range 200 {
			s := sample(perSecond, utilization, longer)
			s.Share = value(0.2)
			s.Lag, s.Runnable = monitor.Lag{P50: time.Second, P90: 2 * time.Second, Count: 100}, value(1000)
			d = c.Step(now.next(s))
		}
		runs := perSecond * (usual + longer).Seconds()
		elsewhere := min(max(perSecond*usual.Seconds()-utilization*float64(processors), 0), runs)
		floor := elsewhere + math.Sqrt(elsewhere) + float64(processors)
		if got := float64(d.TargetConcurrency); math.Abs(got-floor) > 0.5+0.01*floor {
			t.Fatalf("C23: limit %v, want %v: %v", got, floor, d.Reasons)
		}
	})
}

// C24: where others take processors, executions take longer, and nothing is cut for that: not when it begins, not while it
// changes, and not when it ends. A dependency that becomes slow meanwhile is noticed.
func TestTheftIsNoSlowDependency(t *testing.T) {
	for _, share := range []float64{0.1, 0.3, 0.6} {
		c, m := mustNew(t, control.Config{Processors: 2, Initial: 60, Max: 60}), newModel(1)
		m.took, m.spread, m.offered = 0.05, 0.2, 37
		d := begin(c)
		drive := func(seconds int, share, took float64) (lowest int, said string) {
			lowest = 1000
			m.took, m.offered = took, 37*took/0.05
			for range 10 * seconds {
				s := m.sample(d.TargetConcurrency)
				s.Utilization = value(0.03)
				if share < 1 {
					s.Share = value(share)
				}
				d = c.Step(s)
				lowest = min(lowest, d.TargetConcurrency)
				said += fmt.Sprint(d.Reasons)
			}
			return lowest, said
		}
		drive(20, 1, 0.05)
		for i, part := range []struct{ share, took float64 }{{share, 0.06}, {share / 2, 0.066}, {share, 0.06}, {1, 0.05}} {
			if lowest, said := drive(20, part.share, part.took); lowest < 60 || strings.Contains(said, "service_trial") {
				t.Errorf("C24: share %v, part %d: the limit falls to %d of 60", share, i, lowest)
			}
		}
		m.slots = 10
		drive(3, share, 0.06) // known as of now
		if lowest, said := drive(60, share, 0.06); lowest > 20 {
			t.Errorf("C24: share %v: the limit is at least %d for ten slots: %s", share, lowest, said[len(said)-200:])
		}
	}
}

// C24: where all of the processor time that we get is used, processors are the bottleneck, and execution times cut nothing.
func TestAShareUsedUpIsNoSlowDependency(t *testing.T) {
	c, m := mustNew(t, control.Config{Processors: 2, Initial: 64}), crowd()
	d := begin(c)
	for range 300 {
		s := m.sample(d.TargetConcurrency)
		s.Share, s.Utilization = value(0.2), value(0.19)
		if d = c.Step(s); d.TargetConcurrency < 64 {
			t.Fatalf("C24: limit %d: %v", d.TargetConcurrency, d.Reasons)
		}
	}
}

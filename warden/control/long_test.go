// SPDX-License-Identifier: Apache-2.0

// What runs for long comes on top of the limit: the exception of C8.

package control_test

import (
	"cmp"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/monitor"
)

// streams is a sample of calm processors while n executions run for long and nothing else does.
func streams(n int) monitor.Sample {
	s := quiet()
	s.Service = monitor.Service{Concurrency: float64(n), Running: n, Long: n}
	return s
}

// What runs for long comes on top, in steps of no more than the limit and never above Max; beyond 512 less is left to what ends, one
// task at least; and it goes when it ends.
func TestPropertyLongComesOnTop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := control.Config{Processors: 2, Initial: rapid.IntRange(1, 64).Draw(t, "initial")}
		if rapid.Bool().Draw(t, "bounded") {
			cfg.Max = cfg.Initial + rapid.IntRange(0, 300).Draw(t, "room")
		}
		c, now := mustNew(t, cfg), clock{}
		before := begin(c)
		parked := rapid.SampledFrom([]int{0, 0, 5000}).Draw(t, "parked")
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 1000), 1, 5).Draw(t, "so many") {
			for range 40 {
				s := streams(n)
				s.Service.Parked, s.Service.Running = parked, n+parked
				d := c.Step(now.next(s))
				if most := cmp.Or(cfg.Max, 1<<16); d.TargetConcurrency+d.Parked != most {
					t.Fatalf("C8: %d, and %d parked, at most %d", d.TargetConcurrency, d.Parked, most)
				}
				if d.TargetConcurrency > before.TargetConcurrency+max(before.TargetConcurrency, cfg.Initial) {
					t.Fatalf("C8: from %d to %d in a step", before.TargetConcurrency, d.TargetConcurrency)
				}
				before = d
			}
			left := float64(cfg.Initial)
			if n > 512 {
				left = max(left*512/float64(n), 1)
			}
			want := int(math.Round(float64(n) + left))
			if cfg.Max > 0 {
				want = min(want, cfg.Max)
			}
			if before.TargetConcurrency != want {
				t.Fatalf(
					"C8: the limit is %d while %d run for long, from %d on, at most %d; want %d",
					before.TargetConcurrency, n, cfg.Initial, cfg.Max, want,
				)
			}
		}
	})
}

// They come in steps of no more than the limit also where processors hold that below what execution times allow.
func TestLongComesInStepsDuringAJam(t *testing.T) {
	c, m := mustNew(t, control.Config{Processors: 2, Initial: 100}), newModel(1)
	m.took, m.offered = 0.05, 50
	_, before := m.drive(c, 5, begin(c))
	jam := jammed()
	for range 15 {
		before = c.Step(m.next(jam))
	}
	if before.TargetConcurrency != 2 {
		t.Fatalf("the limit in a jam is %d", before.TargetConcurrency)
	}
	jam.Service = monitor.Service{Concurrency: 50, Running: 50, Long: 50}
	for range 10 {
		d := c.Step(m.next(jam))
		if d.TargetConcurrency > 2*before.TargetConcurrency {
			t.Fatalf("C8: from %d to %d in a step", before.TargetConcurrency, d.TargetConcurrency)
		}
		before = d
	}
	if before.TargetConcurrency != 52 {
		t.Errorf("C8: the limit is %d while 50 run for long, want 52", before.TargetConcurrency)
	}
}

// None comes on top where it may be that all compute.
func TestLongThatIsNotMadeUpFor(t *testing.T) {
	busy := func(n int) monitor.Sample {
		s := streams(n)
		s.Utilization = value(0.99)
		return s
	}
	for name, tc := range map[string]struct {
		sample monitor.Sample
		most   int
	}{
		"processors compute, and nothing has ended": {busy(16), 16},
	} {
		t.Run(name, func(t *testing.T) {
			c, now := mustNew(t, control.Config{Processors: 2}), clock{}
			d := begin(c)
			for range 50 {
				d = c.Step(now.next(tc.sample))
			}
			if d.TargetConcurrency > tc.most {
				t.Errorf("C8: the limit is %d, at most %d: %v", d.TargetConcurrency, tc.most, d.Reasons)
			}
		})
	}
}

// Streams in any number leave the same limit for what ends beside them, and the law finds a dependency as if there were none.
func TestLawIsBlindToStreams(t *testing.T) {
	for _, n := range []int{0, 16, 400} {
		c, m := mustNew(t, control.Config{Processors: 2}), crowd()
		d, sum := begin(c), 0
		for i := range 600 {
			s := m.sample(max(1, d.TargetConcurrency-n))
			s.Service.Concurrency += float64(n)
			s.Service.Running += n
			s.Service.Long = n
			if d = c.Step(s); i >= 300 {
				sum += d.TargetConcurrency - n
			}
		}
		if mean := float64(sum) / 300; mean < 7 || mean > 22 {
			t.Errorf("C11: beside %d streams the limit is %.1f for ten slots", n, mean)
		}
	}
}

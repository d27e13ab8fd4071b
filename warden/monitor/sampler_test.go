// SPDX-License-Identifier: Apache-2.0

// What a sample says about facts: M1, M2 and M3 over every sequence of them.

package monitor

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// newSampler is a Sampler that compares facts with these buckets and reads nothing.
func newSampler(seconds ...float64) *Sampler {
	s := &Sampler{}
	s.measure(seconds)
	return s
}

var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// someFacts draws facts that need not have anything to do with the ones before.
func someFacts(t *rapid.T, buckets int) facts {
	f := facts{
		at:         start.Add(time.Duration(rapid.Int64Range(-1e12, 1e12).Draw(t, "at"))),
		used:       time.Duration(rapid.Int64Range(0, 1e13).Draw(t, "used")),
		usedOK:     rapid.Bool().Draw(t, "usedOK"),
		procs:      rapid.IntRange(1, 256).Draw(t, "procs"),
		runnable:   rapid.Uint64Range(0, 1e6).Draw(t, "runnable"),
		runnableOK: rapid.Bool().Draw(t, "runnableOK"),
	}
	quota := rapid.OneOf(rapid.Just(math.Inf(1)), rapid.Float64Range(0.001, 512)).Draw(t, "quota")
	f.allowed = min(float64(f.procs), quota)
	if rapid.Bool().Draw(t, "throttledOK") {
		f.throttled = Reading{rapid.Float64Range(0, 1).Draw(t, "throttled"), true}
	}
	if rapid.Bool().Draw(t, "latencies") {
		f.counts = rapid.SliceOfN(rapid.Uint64Range(0, 1e6), buckets, buckets).Draw(t, "counts")
	}
	return f
}

// TestPropertyNeverNegative: whatever the sources say one after the other, with clocks and counters that jump both ways.
func TestPropertyNeverNegative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSampler(someBounds(t)...)
		n := len(s.delays.counts)
		s.compareLocked(someFacts(t, n))
		for range rapid.IntRange(1, 8).Draw(t, "samples") {
			mustBeSound(t, s.compareLocked(someFacts(t, n)))
		}
	})
}

// mustBeSound fails unless everything a sample says is in the range its documentation gives.
func mustBeSound(t interface{ Fatalf(string, ...any) }, s Sample) {
	l := s.Lag
	if l.P50 < 0 || l.P50 > l.P90 || l.P90 > l.P99 {
		t.Fatalf("lag: %+v", l)
	}
	if l.Count == 0 && l != (Lag{}) {
		t.Fatalf("lag of nothing: %+v", l)
	}
	for name, r := range map[string]Reading{"utilization": s.Utilization, "runnable": s.Runnable, "throttled": s.Throttled} {
		if !(r.Value >= 0 && r.Value < math.Inf(1)) || name != "runnable" && r.Value > 1 || !r.OK && r.Value != 0 {
			t.Fatalf("%s: %+v", name, r)
		}
	}
	v := s.Service
	if s.Gap < 0 || v.P50 < 0 || v.P50 > v.P90 || !(v.Throughput >= 0 && v.Concurrency >= 0) ||
		(v.Count == 0) != (v.Throughput == 0) || v.Count == 0 && v.P90 != 0 {
		t.Fatalf("gap %v, service %+v", s.Gap, v)
	}
}

// TestPropertyNoThreshold: a service that is k times slower reads k times slower, one that is busier reads busier in
// proportion, at every scale. Where a number were compared with a constant, this would bend.
func TestPropertyNoThreshold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bounds := []float64{0, 0x1p-20, 0x1p-10, 0x1p-9, 1, 0x1p10}
		n := len(bounds) - 1
		counts := rapid.SliceOfN(rapid.SampledFrom([]uint64{0, 0, 0, 1, 7, 1000}), n, n).Draw(t, "counts")
		gap := time.Duration(rapid.Int64Range(1, 1e9).Draw(t, "gap"))
		used := time.Duration(rapid.Int64Range(0, int64(gap)).Draw(t, "used"))
		runnable := rapid.Uint64Range(0, 1000).Draw(t, "runnable")
		procs := rapid.IntRange(1, 128).Draw(t, "procs")

		// slower is by how much all times are multiplied, more all amounts.
		sample := func(slower int64, more uint64) Sample {
			scaled := slices.Clone(bounds)
			for i := range scaled {
				scaled[i] *= float64(slower)
			}
			s := newSampler(scaled...)
			s.compareLocked(facts{at: start, counts: make([]uint64, n), usedOK: true, procs: procs, allowed: float64(procs)})
			many := slices.Clone(counts)
			for i := range many {
				many[i] *= more
			}
			return s.compareLocked(facts{
				at: start.Add(gap * time.Duration(slower)), counts: many, used: used * time.Duration(slower), usedOK: true,
				procs: procs, allowed: float64(procs), runnable: runnable * more, runnableOK: true,
			})
		}
		base := sample(1, 1)
		slower := rapid.SampledFrom([]int64{2, 64, 4096}).Draw(t, "slower")
		more := rapid.SampledFrom([]uint64{2, 64, 4096}).Draw(t, "more")
		got := sample(slower, more)

		near := func(what string, a, b time.Duration) {
			if d := a*time.Duration(slower) - b; d.Abs() > time.Duration(2*slower) { // a was rounded to 1 ns
				t.Fatalf("M1: %s: %v, and %d times that is %v", what, a, slower, b)
			}
		}
		near("p50", base.Lag.P50, got.Lag.P50)
		near("p90", base.Lag.P90, got.Lag.P90)
		near("p99", base.Lag.P99, got.Lag.P99)
		near("gap", base.Gap, got.Gap)
		if base.Lag.Count*more != got.Lag.Count || !base.Runnable.OK || !got.Runnable.OK ||
			base.Runnable.Value*float64(more) != got.Runnable.Value {
			t.Fatalf("M1: amounts times %d: %+v, %+v", more, base, got)
		}
		if want := float64(used) / float64(gap) / float64(procs); math.Abs(base.Utilization.Value-want) > 1e-9 ||
			math.Abs(got.Utilization.Value-want) > 1e-9 {
			t.Fatalf("M1: utilization %v and %v, want %v", base.Utilization, got.Utilization, want)
		}
	})
}

// TestAllowanceChanges: GOMAXPROCS and quota count half before and half after, and use beyond both is all of it.
func TestAllowanceChanges(t *testing.T) {
	for _, c := range []struct{ before, after, used, want float64 }{
		{2, 2, 1, 0.5}, {8, 2, 2, 0.4}, {2, 8, 5, 1}, {2, 8, 0, 0}, {0.5, 0.5, 0.25, 0.5}, {4, 4, 5, 1},
	} {
		s := newSampler(0, 1)
		s.compareLocked(facts{at: start, usedOK: true, procs: 8, allowed: c.before})
		got := s.compareLocked(
			facts{at: start.Add(time.Second), used: time.Duration(c.used * 1e9), usedOK: true, procs: 8, allowed: c.after},
		)
		if got.Utilization != (Reading{c.want, true}) || got.Processors != c.after {
			t.Errorf("M3: %+v: %+v of %v processors", c, got.Utilization, got.Processors)
		}
	}
}

// TestRealChanges takes real samples over real changes of GOMAXPROCS, from several goroutines.
func TestRealChanges(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	s := must(New())(t)
	r := s.Recorder()
	samples := make(chan Sample, 400)
	for range 4 {
		go func() {
			for range 100 {
				sp := r.Start("")
				samples <- s.Sample()
				sp.End()
			}
		}()
	}
	for i := range 400 {
		if i%40 == 0 {
			runtime.GOMAXPROCS(1 + i%3)
		}
		mustBeSound(t, <-samples)
	}
}

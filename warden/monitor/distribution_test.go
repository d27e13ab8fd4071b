// SPDX-License-Identifier: Apache-2.0

// Percentiles and differences of histograms, against ones that keep every value.

package monitor

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// someBounds draws boundaries as runtime/metrics has them, in seconds.
func someBounds(t *rapid.T) []float64 {
	steps := rapid.SliceOfN(rapid.Float64Range(1e-9, 10), 1, 12).Draw(t, "steps")
	var bounds []float64
	at := 0.0
	for _, step := range steps {
		bounds = append(bounds, at)
		at += step
	}
	bounds = append(bounds, at)
	if rapid.Bool().Draw(t, "underflow") {
		bounds = slices.Insert(bounds, 0, math.Inf(-1))
	}
	if rapid.Bool().Draw(t, "overflow") {
		bounds = append(bounds, math.Inf(1))
	}
	return bounds
}

// TestPropertyLagIsWhatTheBucketsSay draws values into buckets and looks for them in the percentiles.
func TestPropertyLagIsWhatTheBucketsSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := distribution{bounds: boundaries(someBounds(t))}
		d.counts = rapid.SliceOfN(rapid.Uint64Range(0, 20), len(d.bounds)-1, len(d.bounds)-1).Draw(t, "counts")
		var buckets []int // of each value, in order
		for i, c := range d.counts {
			buckets = append(buckets, slices.Repeat([]int{i}, int(c))...)
		}
		l := d.lag()
		if l.Count != uint64(len(buckets)) {
			t.Fatalf("M3: count %d of %d values", l.Count, len(buckets))
		}
		if len(buckets) == 0 {
			if l != (Lag{}) {
				t.Fatalf("M3: nothing was observed: %+v", l)
			}
			return
		}
		if l.P50 < 0 || l.P50 > l.P90 || l.P90 > l.P99 {
			t.Fatalf("M3: out of order: %+v", l)
		}
		for q, got := range map[float64]time.Duration{0.5: l.P50, 0.9: l.P90, 0.99: l.P99} {
			b := buckets[int(math.Ceil(q*float64(len(buckets))-1e-9))-1]
			if got < nanoseconds(d.bounds[b]) || got > nanoseconds(d.bounds[b+1]) {
				t.Fatalf("M3: p%v is %v, not in bucket %d of %v", 100*q, got, b, d.bounds)
			}
		}
	})
}

func TestBoundaries(t *testing.T) {
	inf := math.Inf(1)
	got := boundaries([]float64{-inf, -1, 0, 0.5, 2, inf})
	if want := []float64{0, 0, 0, 5e8, 2e9, 2e9}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// A delay in the overflow bucket is as long as is known, and one that no Duration can hold is the longest.
	over := distribution{counts: []uint64{0, 0, 0, 0, 7}, bounds: got}
	if l := over.lag(); l != (Lag{2e9, 2e9, 2e9, 7}) {
		t.Errorf("overflow: %+v", l)
	}
	huge := distribution{counts: []uint64{1, 1}, bounds: boundaries([]float64{0, math.MaxFloat64 / 1e9, inf})}
	if l := huge.lag(); l.P99 != math.MaxInt64 {
		t.Errorf("huge: %+v", l)
	}
}

func TestPropertyDeltasOverResets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 5
		counts, prev, delta := make([]uint64, n), make([]uint64, n), make([]uint64, n)
		var want [n]uint64 // counted since the last look, by the process that counts now
		t.Repeat(map[string]func(*rapid.T){
			"count": func(t *rapid.T) {
				i, c := rapid.IntRange(0, n-1).Draw(t, "i"), rapid.Uint64Range(1, 1000).Draw(t, "c")
				counts[i] += c
				want[i] += c
			},
			"reset": func(*rapid.T) {
				clear(counts)
				want = [n]uint64{}
			},
			"look": func(t *rapid.T) {
				fell := false
				for i := range counts {
					fell = fell || counts[i] < prev[i]
				}
				hidden := !fell && slices.ContainsFunc(prev, func(c uint64) bool { return c != 0 })
				since(delta, prev, counts)
				for i, d := range delta {
					// A reset that counting has made up for cannot be seen; what is told is then too little.
					if d > counts[i] || d != want[i] && !(hidden && d <= want[i]) {
						t.Fatalf("M3: bucket %d: %d more, want %d", i, d, want[i])
					}
				}
				want = [n]uint64{}
			},
		})
	})
}

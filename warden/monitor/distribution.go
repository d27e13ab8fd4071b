// SPDX-License-Identifier: Apache-2.0

// Histograms, and the statistics that they allow.

package monitor

import (
	"math"
	"slices"
	"time"
)

// A distribution has counts[i] values between bounds[i] and bounds[i+1], in nanoseconds. Bounds are finite, not negative and
// sorted; there is one more bound than counts.
type distribution struct {
	counts []uint64
	bounds []float64
}

func (d distribution) count() (n uint64) {
	for _, c := range d.counts {
		n += c
	}
	return n
}

// quantile returns the q-quantile of all n values, interpolated linearly within a range. It grows with q and lies in a range
// that holds values.
func (d distribution) quantile(q float64, n uint64) time.Duration {
	rank := q * float64(n)
	var below float64
	for i, c := range d.counts {
		if c != 0 && below+float64(c) >= rank {
			low, high := d.bounds[i], d.bounds[i+1]
			return nanoseconds(min(high, low+(high-low)*(max(0, rank-below)/float64(c))))
		}
		below += float64(c)
	}
	return d.max() // q is 1, and the sum was rounded
}

// spaced fills times with evenly spaced quantiles of the n values.
func (d distribution) spaced(times []time.Duration, n uint64) {
	i, below := 0, 0.0
	for k := range times {
		rank := (float64(k) + 0.5) * float64(n) / float64(len(times))
		for below+float64(d.counts[i]) < rank {
			below += float64(d.counts[i])
			i++
		}
		low, high := d.bounds[i], d.bounds[i+1]
		times[k] = nanoseconds(low + (high-low)*(rank-below)/float64(d.counts[i]))
	}
}

// max returns the upper bound of the highest range that holds a value.
func (d distribution) max() time.Duration {
	for i, c := range slices.Backward(d.counts) {
		if c != 0 {
			return nanoseconds(d.bounds[i+1])
		}
	}
	return 0
}

// since writes the increase of a cumulative histogram since prev into delta, and counts into prev. A count that fell has
// restarted, so all of it is new.
func since(delta, prev, counts []uint64) {
	restarted := false
	for i, c := range counts {
		restarted = restarted || c < prev[i]
		delta[i] = c - prev[i]
	}
	if restarted {
		copy(delta, counts)
	}
	copy(prev, counts)
}

// boundaries converts the bounds of a runtime histogram, in seconds, to those of a distribution. Bounds below 0 become 0, and
// an infinite bound becomes the range's finite one.
func boundaries(seconds []float64) []float64 {
	bounds := make([]float64, len(seconds))
	for i, s := range seconds {
		switch {
		case math.IsInf(s, 1) && i > 0:
			bounds[i] = bounds[i-1]
		case s > 0:
			bounds[i] = s * 1e9
		}
	}
	return bounds
}

// nanoseconds converts ns to a Duration, at most the longest one.
func nanoseconds(ns float64) time.Duration {
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}

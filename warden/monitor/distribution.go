// Counts by range, and what they say about the values behind them.

package monitor

import (
	"math"
	"slices"
	"time"
)

// A distribution says that counts[i] values lay between bounds[i] and bounds[i+1], in nanoseconds. Bounds are finite, not
// negative and in order; there is one more of them than of counts.
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

// quantile is the value that the share q of all n values does not exceed, as if those of one range lay evenly in it. It
// grows with q and lies in a range that holds values.
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

// spaced fills times with values of the n there are, as far apart from each other in order, and as far from both ends.
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

// max is the upper end of the highest range that holds a value.
func (d distribution) max() time.Duration {
	for i, c := range slices.Backward(d.counts) {
		if c != 0 {
			return nanoseconds(d.bounds[i+1])
		}
	}
	return 0
}

// mean is the mean of n values, as if each lay in the middle of its range.
func (d distribution) mean(n uint64) time.Duration {
	var sum float64
	for i, c := range d.counts {
		if c != 0 {
			sum += float64(c) * (d.bounds[i]/2 + d.bounds[i+1]/2)
		}
	}
	return min(d.max(), nanoseconds(sum/float64(n)))
}

// since turns the counts of a cumulative histogram into those of the time since prev, in place of delta, and prev into
// them. A count that fell can only mean that counting began anew, then all there is has come since.
func since(delta, prev, counts []uint64) {
	anew := false
	for i, c := range counts {
		anew = anew || c < prev[i]
		delta[i] = c - prev[i]
	}
	if anew {
		copy(delta, counts)
	}
	copy(prev, counts)
}

// boundaries turns those of a runtime histogram, in seconds, into those of a distribution. What lies below 0 is 0, and a
// range without an end is taken for its beginning, the only value of it that is known.
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

// nanoseconds is a Duration of that many, the longest there is if they are more.
func nanoseconds(ns float64) time.Duration {
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}

// SPDX-License-Identifier: Apache-2.0

// Execution times and rejection rate over the last minute.

package bulkhead

import (
	"math/rand/v2"
	"time"

	"github.com/stopbank/stopbank/warden/internal/histogram"
)

// window covers the last minute in six slices, guarded by Set.mu. Two clock readings would cost a short call more than
// everything else, so in each slice only the first executions are all timed; later ones are sampled, and each sample counts
// for those skipped.
type window struct {
	current int64 // number of the current slice
	slices  [windowSlices]slice
	busy    bool // the current slice has timed enough: sample from now on
	skip    int  // executions until the next sample

	usual time.Duration // moving average of the timed executions
}

const (
	windowSlices = 6
	sliceLength  = 10 * time.Second
	enough       = 512
	lately       = 16 // executions: the span of the moving average
	every        = 16

	// The histogram has ranges of 1024 ns up to 8 us, and from there 8 ranges for each doubling up to an hour, so that
	// a range is at most 1/8 of its value wide.
	fineBits  = 10
	groupBits = 3
	ranges    = histogram.Groups << groupBits
)

// slice is the record of ten seconds.
type slice struct {
	rejected, finished uint64 // counters of the pool when the slice began
	timed              int
	sum                float64
	counts             [ranges]uint32
}

// stopwatch is the start of an execution and its weight, the number of executions that it counts for; 0: not timed.
type stopwatch struct {
	at     time.Duration // by the set's clock
	weight uint32
}

// weigh chooses the weight of an execution that starts now: 1 if the time of each is needed.
func (w *window) weigh(each bool) uint32 {
	if each || !w.busy {
		return 1
	}
	if w.skip--; w.skip >= 0 {
		return 0
	}
	w.skip = rand.IntN(2*every - 1) // every - 1 on average, and in no step with the calls
	return every
}

func (w *stopwatch) start(s *Set) {
	if w.weight > 0 {
		w.at = s.clock()
	}
}

// soFar returns the elapsed time; 0 if not timed.
func (w *stopwatch) soFar(s *Set) time.Duration {
	if w.weight == 0 {
		return 0
	}
	return s.clock() - w.at
}

// record counts an execution that ends now, if it is timed.
func (w *window) record(began stopwatch, now time.Duration, n *counts) {
	if began.weight == 0 {
		return
	}
	took := max(0, now-began.at)
	if w.usual == 0 {
		w.usual = took
	}
	w.usual += (took - w.usual) / lately
	s := w.at(now, n)
	s.counts[rangeOf(took)] += began.weight
	s.sum += float64(took) * float64(began.weight)
	if s.timed++; s.timed == enough {
		w.busy = true
	}
}

// at returns the current slice. It starts that slice, and those skipped since the last call.
func (w *window) at(now time.Duration, n *counts) *slice {
	last := int64(now / sliceLength)
	if last > w.current {
		for i := max(w.current+1, last-windowSlices+1); i <= last; i++ {
			w.slices[i%windowSlices] = slice{rejected: n.rejected, finished: n.finished}
		}
		w.current = last
		w.busy = false
	}
	return &w.slices[last%windowSlices]
}

// read returns the statistics of the window.
func (w *window) read(now time.Duration, n *counts) (rejectionRate float64, e Execution) {
	w.at(now, n)
	first := &w.slices[(w.current+1)%windowSlices]
	rejected, finished := n.rejected-first.rejected, n.finished-first.finished
	if rejected > 0 {
		rejectionRate = float64(rejected) / float64(rejected+finished)
	}
	var all [ranges]uint64
	sum := 0.0
	for i := range w.slices {
		s := &w.slices[i]
		sum += s.sum
		for r, c := range &s.counts {
			all[r] += uint64(c)
			e.Count += uint64(c)
		}
	}
	if e.Count > 0 {
		e.Mean = time.Duration(sum / float64(e.Count))
		e.P50, e.P90, e.P99 = quantile(&all, e.Count, 0.5), quantile(&all, e.Count, 0.9), quantile(&all, e.Count, 0.99)
	}
	return rejectionRate, e
}

// quantile returns the q-quantile of n values, interpolated linearly within a range.
func quantile(counts *[ranges]uint64, n uint64, q float64) time.Duration {
	rank, below := q*float64(n), 0.0
	for r, c := range counts {
		if c > 0 && below+float64(c) >= rank {
			low, high := float64(rangeBegin(r)), float64(rangeBegin(r+1))
			return time.Duration(low + (high-low)*(rank-below)/float64(c))
		}
		below += float64(c)
	}
	return rangeBegin(ranges)
}

// rangeOf returns the range of d, which is not negative.
func rangeOf(d time.Duration) int { return histogram.RangeOf(d, fineBits, groupBits) }

// rangeBegin returns the lower bound of range r.
func rangeBegin(r int) time.Duration { return histogram.Begin(r, fineBits, groupBits) }

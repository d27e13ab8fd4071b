// How long functions take, and how many are refused, over the last minute.

package bulkhead

import (
	"math/bits"
	"math/rand/v2"
	"time"
)

// window is the last minute in six slices, guarded by Set.mu. To read the clock twice would cost a short call more than all
// else, so of a slice's executions only the first are timed one by one; after those, one in every, which stands for the
// others.
type window struct {
	current int64 // number of the slice that now lies in
	slices  [windowSlices]slice
	busy    bool // the present slice has timed enough to choose
	skip    int  // executions until the next one that is timed then

	usual time.Duration // what the last executions that were timed took, on average
}

const (
	windowSlices = 6
	sliceLength  = 10 * time.Second
	enough       = 512
	lately       = 16 // executions: the span of usual
	every        = 16

	// Times are counted in ranges of 1024 ns up to 8 us, and from there in 8 ranges for each doubling up to an hour, so that
	// a range is at most 1/8 of its value wide.
	fineBits  = 10
	perGroup  = 8
	groupBits = 3
	ranges    = 32 * perGroup
)

// slice is what was recorded in ten seconds.
type slice struct {
	refused, finished uint64 // of the part when the slice began
	timed             int
	sum               float64
	counts            [ranges]uint32
}

// stopwatch is when a function began, and for how many it stands; 0: it is not timed.
type stopwatch struct {
	at     time.Duration // by the set's clock
	weight uint32
}

// weigh decides for how many a function that begins now stands: for itself, if each is to be told to an observer.
func (w *window) weigh(observed bool) uint32 {
	if observed || !w.busy {
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

// soFar is how long it has been running; 0 if it is not timed.
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

// at is the slice that now lies in. It begins that one, and those before it that nobody has begun.
func (w *window) at(now time.Duration, n *counts) *slice {
	last := int64(now / sliceLength)
	if last > w.current {
		for i := max(w.current+1, last-windowSlices+1); i <= last; i++ {
			w.slices[i%windowSlices] = slice{refused: n.refused, finished: n.finished}
		}
		w.current = last
		w.busy = false
	}
	return &w.slices[last%windowSlices]
}

// read is what the window holds.
func (w *window) read(now time.Duration, n *counts) (rejectionRate float64, e Execution) {
	w.at(now, n)
	first := &w.slices[(w.current+1)%windowSlices]
	refused, finished := n.refused-first.refused, n.finished-first.finished
	if refused > 0 {
		rejectionRate = float64(refused) / float64(refused+finished)
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

// quantile is the value that the share q of n values does not exceed, as if those of one range lay evenly in it.
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

// rangeOf is the range that d, which is not negative, is counted in.
func rangeOf(d time.Duration) int {
	u := uint64(d) >> fineBits
	if u < perGroup {
		return int(u)
	}
	group := bits.Len64(u) - groupBits
	return min(ranges-1, group*perGroup+int(u>>(group-1))-perGroup)
}

// rangeBegin is where range r begins.
func rangeBegin(r int) time.Duration {
	group, in := r/perGroup, r%perGroup
	if group == 0 {
		return time.Duration(in) << fineBits
	}
	return time.Duration(perGroup+in) << (group - 1) << fineBits
}

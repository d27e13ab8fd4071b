// How long functions take, and how many are refused, over the last minute.

package bulkhead

import (
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// window is the last minute in six slices. To read the clock twice would cost a short call more than all else, so of a
// slice's executions only the first are timed one by one; after those, one in every, which stands for the others.
type window struct {
	epoch   time.Time
	current atomic.Int64 // number of the slice that now lies in
	busy    atomic.Bool  // it has timed enough to choose
	mu      sync.Mutex   // taken to begin a slice, and to read all
	slices  [windowSlices]slice
}

const (
	windowSlices = 6
	sliceLength  = 10 * time.Second
	enough       = 512
	every        = 16

	// Times are counted in ranges of 1024 ns up to 8 us, and from there in 8 ranges for each doubling up to an hour, so that
	// a range is at most 1/8 of its value wide.
	fineBits  = 10
	perGroup  = 8
	groupBits = 3
	ranges    = 32 * perGroup
)

// slice is what was recorded in ten seconds. What is recorded in the instant at which its place is taken by a later one
// may be lost, or be counted there.
type slice struct {
	refused, finished uint64 // of the part when the slice began; guarded by window.mu
	timed             atomic.Uint32
	sum               atomic.Int64
	counts            [ranges]atomic.Uint32
}

// stopwatch is when a function began, and for how many it stands; 0: it is not timed.
type stopwatch struct {
	at     time.Duration // since window.epoch
	weight uint32
}

func (w *window) now() time.Duration { return time.Since(w.epoch) }

func (w *window) begin(timed bool) stopwatch {
	weight := uint32(1)
	if w.busy.Load() && !timed {
		if weight = every; rand.Uint32()%every != 0 {
			return stopwatch{}
		}
	}
	return stopwatch{w.now(), weight}
}

// soFar is how long it has been running; 0 if it is not timed.
func (s stopwatch) soFar(w *window) time.Duration {
	if s.weight == 0 {
		return 0
	}
	return w.now() - s.at
}

// record counts an execution that ends now.
func (w *window) record(began stopwatch, p *part) {
	if began.weight == 0 {
		return
	}
	now := w.now()
	took := max(0, now-began.at)
	s := w.at(now, p)
	s.counts[rangeOf(took)].Add(began.weight)
	s.sum.Add(int64(took) * int64(began.weight))
	if s.timed.Add(1) == enough {
		w.busy.Store(true)
	}
}

// at is the slice that now lies in.
func (w *window) at(now time.Duration, p *part) *slice {
	n := int64(now / sliceLength)
	if n > w.current.Load() {
		w.turn(n, p)
	}
	return &w.slices[n%windowSlices]
}

// turn begins slice n, and those before it that nobody has begun.
func (w *window) turn(n int64, p *part) {
	refused, finished := p.tally.refused.Load(), p.finished()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := max(w.current.Load()+1, n-windowSlices+1); i <= n; i++ {
		s := &w.slices[i%windowSlices]
		s.refused, s.finished = refused, finished
		s.timed.Store(0)
		s.sum.Store(0)
		for r := range s.counts {
			s.counts[r].Store(0)
		}
		w.current.Store(i)
	}
	w.busy.Store(false)
}

// read is what the window holds.
func (w *window) read(p *part) (rejectionRate float64, e Execution) {
	w.at(w.now(), p)
	refused, finished := p.tally.refused.Load(), p.finished()
	w.mu.Lock()
	defer w.mu.Unlock()
	first := &w.slices[(w.current.Load()+1)%windowSlices]
	refused, finished = refused-min(refused, first.refused), finished-min(finished, first.finished)
	if refused > 0 {
		rejectionRate = float64(refused) / float64(refused+finished)
	}
	var counts [ranges]uint64
	sum := 0.0
	for i := range w.slices {
		s := &w.slices[i]
		sum += float64(s.sum.Load())
		for r := range counts {
			c := uint64(s.counts[r].Load())
			counts[r] += c
			e.Count += c
		}
	}
	if e.Count > 0 {
		e.Mean = time.Duration(sum / float64(e.Count))
		e.P50, e.P90, e.P99 = quantile(&counts, e.Count, 0.5), quantile(&counts, e.Count, 0.9), quantile(&counts, e.Count, 0.99)
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

// The recorder: a sketch of execution times and of concurrency that many goroutines write without a lock.

package monitor

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// Recorder is told when work starts and ends, by whoever runs it, and feeds Sample.Service. Its methods may be called by
// any number of goroutines; they never block and allocate nothing. A nil or zero Recorder records nothing.
//
// It is written in shards so that cores seldom share a cache line, and takes about 2 KiB for each of at most 64 of them.
type Recorder struct {
	shards []shard // a power of two of them
	epoch  time.Time
	owned  atomic.Bool // a Sampler takes from it

	// What take needs, which the Sampler's mutex guards.
	total distribution
	tick  uint64 // when it last took
	area  uint64 // the area as of then
}

// NewRecorder returns a Recorder for [Config]. It has shards for as many cores as GOMAXPROCS is now; should that grow, it stays
// right and gets slower.
func NewRecorder() *Recorder {
	r := &Recorder{epoch: time.Now()}
	n := min(maxShards, 4*runtime.GOMAXPROCS(0))
	r.shards = make([]shard, 1<<bits.Len(uint(n-1)))
	r.total.counts = make([]uint64, ranges)
	r.total.bounds = make([]float64, ranges+1)
	for i := range r.total.bounds {
		r.total.bounds[i] = float64(begin(i))
	}
	return r
}

// Span is one execution under way. The zero Span records nothing.
type Span struct {
	r     *Recorder
	start time.Duration // since r.epoch
}

// Start says that an execution begins now. Its Span must be ended exactly once, by [Span.End] or [Span.Discard], by any
// goroutine; one that never is stays in Service.Concurrency for ever.
func (r *Recorder) Start() Span {
	if r == nil || len(r.shards) == 0 {
		return Span{}
	}
	now := time.Since(r.epoch)
	r.shard().enter(now)
	return Span{r, now}
}

// End says that the execution is over and how long it took, which it also returns. Executions of more than 36 minutes
// count as being that long.
func (s Span) End() time.Duration {
	if s.r == nil {
		return 0
	}
	now := time.Since(s.r.epoch)
	took := max(0, now-s.start)
	sh := s.r.shard()
	sh.observe(took)
	sh.leave(now)
	return took
}

// Discard says that the execution is over and that its time says nothing about the work: a connection was hijacked, or
// the client went away. It ends the concurrency and counts nothing.
func (s Span) Discard() {
	if s.r != nil {
		s.r.shard().leave(time.Since(s.r.epoch))
	}
}

// shard is the one that goroutines on this stack page write to. Goroutines running at the same time seldom share it. The
// address is only hashed; any shard would be correct.
func (r *Recorder) shard() *shard {
	var mark byte
	h := uint64(uintptr(unsafe.Pointer(&mark))>>11) * 0x9E3779B97F4A7C15 >> 56
	return &r.shards[h&uint64(len(r.shards)-1)]
}

const (
	maxShards = 64

	// Execution times are counted in ranges of 64 ns up to 1 us, and from there in 16 ranges for each doubling up to 36
	// minutes: a range is at most 1/16 of its value wide. (Log-linear buckets, as in HdrHistogram.)
	fineBits  = 6
	perGroup  = 16
	groupBits = 4
	groups    = 32
	ranges    = groups * perGroup

	// Time is counted in ticks of 8192 ns, so that the area has bits enough.
	tickBits = 13
	areaBits = 42
	areaMask = 1<<areaBits - 1
	one      = areaMask + 1
	minusOne = 1<<64 - one
)

// A shard is what one core or a few write.
type shard struct {
	// running holds how many executions started less how many ended here, above, and the ticks at which they ended less
	// those at which they started, below; both modulo their width. They must change in one step: to say how much was
	// executed until now, each one running is worth the ticks since the epoch, too much for one to be missed.
	running atomic.Uint64
	touched atomic.Uint32 // bit g: a count of group g may not be 0
	_       [116]byte     // counts begin two cache lines further on
	counts  [ranges]atomic.Uint32
}

func (s *shard) enter(now time.Duration) { s.add(one, -ticks(now)) }
func (s *shard) leave(now time.Duration) { s.add(minusOne, ticks(now)) }

func (s *shard) add(running, area uint64) {
	for {
		w := s.running.Load()
		if s.running.CompareAndSwap(w, (w+running)&^areaMask|(w+area)&areaMask) {
			return
		}
	}
}

// observe counts before it looks at the mark, and take removes the mark before it looks at the counts: an execution is
// taken now, or its mark is there for the next time.
func (s *shard) observe(took time.Duration) {
	i := rangeOf(took)
	s.counts[i].Add(1)
	if mark := uint32(1) << (i / perGroup); s.touched.Load()&mark == 0 {
		s.touched.Or(mark)
	}
}

// take is what was recorded since it was last called, and makes that the past. Calls take turns. When no tick has passed
// it takes nothing, and leaves all to the next call.
func (r *Recorder) take(at time.Time) Service {
	if r == nil {
		return Service{}
	}
	tick := ticks(at.Sub(r.epoch))
	elapsed := int64(tick - r.tick)
	if elapsed <= 0 {
		return Service{}
	}
	clear(r.total.counts)
	var touched uint32
	var running, area uint64
	for i := range r.shards {
		s := &r.shards[i]
		w := s.running.Load()
		running += w >> areaBits
		area += w
		touched |= s.drain(r.total.counts)
	}
	// The area under the curve of concurrency, from the epoch until now: what ended ran from its start to its end, what
	// runs has run from its start until now. The shards are not read at the same instant, so that an end may be seen
	// whose start is not (running is then -1), and a goroutine may be interrupted between the clock and its shard. What
	// one area has too little, the next has more; what it has too much, the next has less, but never less than nothing.
	area += uint64(int64(running<<areaBits)>>areaBits) * tick
	gained := int64((area-r.area)<<(64-areaBits)) >> (64 - areaBits)
	r.tick, r.area = tick, area

	out := Service{Concurrency: float64(max(0, gained)) / float64(elapsed)}
	low, high := bits.TrailingZeros32(touched)*perGroup, bits.Len32(touched)*perGroup
	if touched == 0 {
		return out
	}
	took := distribution{r.total.counts[low:high], r.total.bounds[low : high+1]}
	if out.Count = took.count(); out.Count != 0 {
		out.P50, out.P90 = took.quantile(0.50, out.Count), took.quantile(0.90, out.Count)
		took.spaced(out.Times[:min(out.Count, uint64(len(out.Times)))], out.Count)
		out.Throughput = float64(out.Count) / (time.Duration(elapsed) << tickBits).Seconds()
	}
	return out
}

// drain moves the shard's counts into total and says which groups it found marked.
func (s *shard) drain(total []uint64) uint32 {
	if s.touched.Load() == 0 {
		return 0
	}
	touched := s.touched.Swap(0)
	for rest := touched; rest != 0; rest &= rest - 1 {
		first := bits.TrailingZeros32(rest) * perGroup
		for i := first; i < first+perGroup; i++ {
			if s.counts[i].Load() != 0 {
				total[i] += uint64(s.counts[i].Swap(0))
			}
		}
	}
	return touched
}

func ticks(d time.Duration) uint64 { return uint64(d >> tickBits) }

// rangeOf is the range that d, which is not negative, is counted in.
func rangeOf(d time.Duration) int {
	u := uint64(d) >> fineBits
	if u < perGroup {
		return int(u)
	}
	group := bits.Len64(u) - groupBits
	return min(ranges-1, group*perGroup+int(u>>(group-1))-perGroup)
}

// begin is where range i begins, and the one before it ends.
func begin(i int) time.Duration {
	group, in := i/perGroup, i%perGroup
	if group == 0 {
		return time.Duration(in) << fineBits
	}
	return time.Duration(perGroup+in) << (group - 1) << fineBits
}

// The recorder: a sketch of execution times and of concurrency that many goroutines update without a lock.

package monitor

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// Recorder records the start and end of executions, and feeds Sample.Service. Its methods are safe for concurrent use; they
// never block and allocate nothing. A nil or zero Recorder records nothing.
//
// It is sharded so that cores seldom share a cache line, and takes about 2 KiB for each of at most 64 shards.
type Recorder struct {
	shards []shard // a power of two of them
	epoch  time.Time
	owned  atomic.Bool // a Sampler takes from it

	// State of take, guarded by the Sampler's mutex.
	total distribution
	tick  uint64 // when it last took
	area  uint64 // the area as of then
}

// NewRecorder returns a Recorder for [Config]. The number of shards follows GOMAXPROCS at the call; if GOMAXPROCS grows
// later, the Recorder stays correct but slows down.
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

// Span is one running execution. The zero Span records nothing.
type Span struct {
	r     *Recorder
	start time.Duration // since r.epoch
}

// Start records that an execution begins. End its Span exactly once, with [Span.End] or [Span.Discard], on any goroutine; a
// Span that is never ended counts in Service.Concurrency forever.
func (r *Recorder) Start() Span {
	if r == nil || len(r.shards) == 0 {
		return Span{}
	}
	now := time.Since(r.epoch)
	r.shard().enter(now)
	return Span{r, now}
}

// End records the end of the execution and returns its execution time. Times of more than 36 minutes count as 36 minutes.
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

// Discard ends an execution whose time says nothing about the work: a connection was hijacked, or the client disconnected. It
// ends the concurrency and counts the execution only in Service.Discarded.
func (s Span) Discard() {
	if s.r != nil {
		sh := s.r.shard()
		sh.discarded.Add(1)
		sh.leave(time.Since(s.r.epoch))
	}
}

// shard returns a shard by the address of the stack page, so goroutines that run at the same time seldom share one. The
// address is only hashed; any shard would be correct.
func (r *Recorder) shard() *shard {
	var mark byte
	h := uint64(uintptr(unsafe.Pointer(&mark))>>11) * 0x9E3779B97F4A7C15 >> 56
	return &r.shards[h&uint64(len(r.shards)-1)]
}

const (
	maxShards = 64

	// The histogram has ranges of 64 ns up to 1 us, and from there 16 ranges for each doubling up to 36 minutes: a range is
	// at most 1/16 of its value wide. (Log-linear buckets, as in HdrHistogram.)
	fineBits  = 6
	perGroup  = 16
	groupBits = 4
	groups    = 32
	ranges    = groups * perGroup

	// A tick is 8192 ns, so that the area fits its bits.
	tickBits = 13
	areaBits = 42
	areaMask = 1<<areaBits - 1
	one      = areaMask + 1
	minusOne = 1<<64 - one
)

// A shard is written by one core or a few.
type shard struct {
	// running holds, in its upper bits, the executions started here minus those ended here, and, in its lower bits, the ticks
	// of those ends minus the ticks of those starts, each modulo its width. Both must change in one step: a running execution
	// counts with all ticks since the epoch, too many to miss one.
	running atomic.Uint64
	touched atomic.Uint32 // bit g: a count of group g may not be 0
	// discarded counts executions that ended and are not in counts.
	discarded atomic.Uint32
	_         [112]byte // counts begin two cache lines further on
	counts    [ranges]atomic.Uint32
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

// observe counts before it checks the mark, and take clears the mark before it reads the counts: so an execution is either
// taken now, or marked for the next time.
func (s *shard) observe(took time.Duration) {
	i := rangeOf(took)
	s.counts[i].Add(1)
	if mark := uint32(1) << (i / perGroup); s.touched.Load()&mark == 0 {
		s.touched.Or(mark)
	}
}

// take returns what was recorded since the last take. It is not called concurrently. When no tick has passed, it takes
// nothing and leaves everything to the next call.
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
	var running, area, discarded uint64
	for i := range r.shards {
		s := &r.shards[i]
		w := s.running.Load()
		running += w >> areaBits
		area += w
		touched |= s.drain(r.total.counts)
		if s.discarded.Load() != 0 {
			discarded += uint64(s.discarded.Swap(0))
		}
	}
	// The area under the curve of concurrency, from the epoch until now: ended executions count from start to end, running
	// ones from start until now. The shards are not read at the same instant, so take may see an end without its start
	// (running is then -1), and a goroutine may be interrupted between the clock and its shard. Such an error is
	// made up by the next area, which is never negative.
	area += uint64(int64(running<<areaBits)>>areaBits) * tick
	gained := int64((area-r.area)<<(64-areaBits)) >> (64 - areaBits)
	r.tick, r.area = tick, area

	out := Service{
		Concurrency: float64(max(0, gained)) / float64(elapsed), Discarded: discarded,
		Running: max(0, int(int64(running<<areaBits)>>areaBits)),
	}
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

// drain moves the shard's counts into total and returns the marked groups.
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

// rangeOf returns the range of d, which is not negative.
func rangeOf(d time.Duration) int {
	u := uint64(d) >> fineBits
	if u < perGroup {
		return int(u)
	}
	group := bits.Len64(u) - groupBits
	return min(ranges-1, group*perGroup+int(u>>(group-1))-perGroup)
}

// begin returns the lower bound of range i, the upper bound of the one before.
func begin(i int) time.Duration {
	group, in := i/perGroup, i%perGroup
	if group == 0 {
		return time.Duration(in) << fineBits
	}
	return time.Duration(perGroup+in) << (group - 1) << fineBits
}

// SPDX-License-Identifier: Apache-2.0

// The sampler: it reads every source at one instant and compares it with the instant before.

package monitor

import (
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

// Sampler takes samples of its own process. [Sampler.Sample] is safe for concurrent use. A Sampler starts no goroutine,
// but one for each question to a [Pool], and needs no cleanup. It must come from [New] and must not be copied.
type Sampler struct {
	// guards all below but recorder; held while sources are read; pools do not run under it, but it waits for them
	mu       sync.Mutex
	sampled  bool // there was a sample before
	prev     facts
	delays   distribution // of the time between the last two facts
	metrics  [7]metrics.Sample
	group    cgroup
	threads  *threads
	recorder *Recorder
	pools    []*poolReader
}

// facts are the raw values of the sources at one instant.
type facts struct {
	at     time.Time
	counts []uint64 // scheduling delays by range since the process began; nil where unknown

	used     time.Duration // processor time since the process began
	usedOK   bool
	procs    int     // GOMAXPROCS
	allowed  float64 // processors that may be used at once: procs, or the quota
	runnable uint64  // goroutines waiting for a processor

	runnableOK bool
	throttled  Reading
	share      Reading
	memory     Memory // Collections and Allocated since the process began
}

// Indexes of Sampler.metrics.
const (
	latencies = iota
	runnable
	heapLive
	gogc
	collections
	memoryLimit
	allocated
)

// New returns a Sampler whose first sample covers the time since this call. Each sample asks the pools, 64 at most. The error is
// an [*decision.InvalidError]: there are more pools, or one is incomplete or has the name of another one.
//
// On Linux a Sampler keeps files open, at most four for each level of the process's cgroup, one for each of at most 32 threads,
// and two more, so that it can read them even when the process has run out of file descriptors; they are closed when the Sampler
// is garbage collected.
func New(pools ...Pool) (*Sampler, error) {
	readers, err := poolReaders(pools)
	if err != nil {
		return nil, err
	}
	s := &Sampler{recorder: newRecorder(), pools: readers, threads: openThreads("/")}
	runtime.AddCleanup(s, (*threads).close, s.threads)
	s.metrics[latencies].Name = "/sched/latencies:seconds"
	s.metrics[runnable].Name = "/sched/goroutines/runnable:goroutines"
	s.metrics[heapLive].Name = "/gc/heap/live:bytes"
	s.metrics[gogc].Name = "/gc/gogc:percent"
	s.metrics[collections].Name = "/gc/cycles/total:gc-cycles"
	s.metrics[memoryLimit].Name = "/gc/gomemlimit:bytes"
	s.metrics[allocated].Name = "/gc/heap/allocs:bytes"
	if runtime.GOOS == "linux" {
		s.group.open("/")
	}
	now := s.readLocked()
	if s.metrics[latencies].Value.Kind() == metrics.KindFloat64Histogram {
		s.measure(s.metrics[latencies].Value.Float64Histogram().Buckets)
	}
	s.compareLocked(now)
	s.recorder.take(now.at)
	return s, nil
}

// Recorder returns the recorder whose executions are in the samples; nil, which records nothing, for a nil or zero Sampler.
func (s *Sampler) Recorder() *Recorder {
	if s == nil {
		return nil
	}
	return s.recorder
}

// measure allocates the histogram of delays for these ranges.
func (s *Sampler) measure(seconds []float64) {
	s.delays.bounds = boundaries(seconds)
	s.delays.counts = make([]uint64, len(seconds)-1)
	s.prev.counts = make([]uint64, len(seconds)-1)
}

// Sample reads every source and returns the change since the previous sample, or since [New]. Without pools and parts it
// allocates nothing, except that Service.Needs is a new map when it has changed, and a few bytes for a thread that is new.
// Concurrent callers take turns, each sampling the time since the previous call, so each observation goes to one caller only: a
// Sampler should have one consumer.
//
// A sample takes about two microseconds (docs/evidence/benchmarks.md), more with pools and parts, and once a second also what
// the cgroup and the threads take: BenchmarkCgroup and BenchmarkThreads print it. It may wait for another reader of
// runtime/metrics, and for a pool that does not answer, 20 ms at most.
func (s *Sampler) Sample() Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	pools := readPools(s.pools)
	now := s.readLocked()
	out := s.compareLocked(now)
	out.Service, out.Parts = s.recorder.takeAll(now.at)
	out.Pools = pools
	if !s.sampled {
		s.sampled = true
		out.Gap = 0
	}
	return out
}

// readLocked reads every source. Its counts are the runtime's memory until the next read.
func (s *Sampler) readLocked() facts {
	metrics.Read(s.metrics[:])
	now := facts{at: time.Now(), procs: runtime.GOMAXPROCS(0)}
	if v := s.metrics[latencies].Value; v.Kind() == metrics.KindFloat64Histogram {
		now.counts = v.Float64Histogram().Counts
	}
	if v := s.metrics[runnable].Value; v.Kind() == metrics.KindUint64 {
		now.runnable, now.runnableOK = v.Uint64(), true
	}
	now.used, now.usedOK = processorTime()
	s.group.refresh(now.at, now.procs)
	now.throttled = s.group.throttled
	if s.threads != nil {
		s.threads.refresh(now, s.group.quota)
		now.share = s.threads.share
	}
	now.memory = s.memoryLocked()
	now.allowed = min(float64(now.procs), s.group.quota)
	return now
}

// memoryLocked returns what the last read says of the heap, and the limit of the cgroup.
func (s *Sampler) memoryLocked() Memory {
	value := func(i int) uint64 {
		if v := s.metrics[i].Value; v.Kind() == metrics.KindUint64 {
			return v.Uint64()
		}
		return 0
	}
	m := Memory{Limit: s.group.memory, Live: value(heapLive), Collections: value(collections),
		Allocated: value(allocated)}
	if percent := value(gogc); percent < math.MaxInt32 { // off is the largest number
		m.Growth = float64(percent) / 100
	}
	if soft := value(memoryLimit); soft > 0 && soft < noMemory && (m.Limit == 0 || soft <= m.Limit) {
		m.Limit, m.Soft = soft, true
	}
	return m
}

// compareLocked returns the change since the previous facts, and keeps these.
func (s *Sampler) compareLocked(now facts) Sample {
	out := Sample{
		At: now.at, Gap: max(0, now.at.Sub(s.prev.at)),
		Processors: now.allowed, Throttled: now.throttled, Share: now.share, Memory: now.memory,
	}
	out.Memory.Collections -= min(s.prev.memory.Collections, out.Memory.Collections)
	out.Memory.Allocated -= min(s.prev.memory.Allocated, out.Memory.Allocated)
	if now.counts != nil {
		since(s.delays.counts, s.prev.counts, now.counts)
		out.Lag = s.delays.lag()
	}
	// A counter that fell has restarted, and without elapsed time there is no share.
	if used := now.used - s.prev.used; now.usedOK && s.prev.usedOK && used >= 0 && out.Gap > 0 {
		// The instant of a change of GOMAXPROCS or of the quota is unknown: assume half way.
		allowed := (now.allowed + s.prev.allowed) / 2
		out.Utilization = Reading{min(1, float64(used)/(float64(out.Gap)*allowed)), true}
	}
	if now.runnableOK {
		out.Runnable = Reading{float64(now.runnable) / float64(now.procs), true}
	}
	now.counts = s.prev.counts
	s.prev = now
	return out
}

// lag summarizes a distribution of scheduling delays.
func (d distribution) lag() Lag {
	n := d.count()
	if n == 0 {
		return Lag{}
	}
	return Lag{P50: d.quantile(0.50, n), P90: d.quantile(0.90, n), P99: d.quantile(0.99, n), Count: n}
}

// The sampler: everything that can be observed, read at one instant and compared with the instant before.

package monitor

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

// Config says what a [Sampler] samples besides the process itself. The zero value samples that alone.
type Config struct {
	// Recorder, if not nil, feeds Sample.Service. It must come from [NewRecorder] and feed no other Sampler.
	Recorder *Recorder
}

// Sampler takes samples of the process that it runs in. [Sampler.Sample] may be called by any number of goroutines. It
// starts no goroutine and needs no cleaning up. It must come from [New] and must not be copied.
type Sampler struct {
	mu       sync.Mutex // guards all below; held while the sources are read, never while foreign code runs
	sampled  bool       // there was a sample before
	prev     facts
	delays   distribution // of the time between the last two facts
	metrics  [2]metrics.Sample
	group    cgroup
	recorder *Recorder
}

// facts are what the sources said at one instant, not compared with anything.
type facts struct {
	at     time.Time
	counts []uint64 // scheduling delays by range since the process began; nil where unknown

	used     time.Duration // processor time since the process began
	usedOK   bool
	procs    int     // GOMAXPROCS
	allowed  float64 // processors that may be used at once: procs, or the quota
	runnable uint64  // goroutines that wait for a processor

	runnableOK bool
	throttled  Reading
}

// Indexes of Sampler.metrics.
const (
	latencies = iota
	runnable
)

// New returns a Sampler whose first sample is about the time since this call. The error is an [*InvalidError]: the Recorder
// is the zero Recorder, or feeds another Sampler.
//
// On Linux it keeps a few files open, at most three for each level of the process's cgroup and one more, so that it can
// read them even when the process has run out of descriptors; they are closed when the Sampler is collected.
func New(cfg Config) (*Sampler, error) {
	if r := cfg.Recorder; r != nil {
		if len(r.shards) == 0 {
			return nil, &InvalidError{Field: "Config.Recorder", Value: "a zero Recorder", Allowed: "nil, or one from NewRecorder"}
		}
		if !r.owned.CompareAndSwap(false, true) {
			return nil, &InvalidError{Field: "Config.Recorder", Value: "one that feeds another Sampler", Allowed: "nil, or one for this Sampler alone"}
		}
	}
	s := &Sampler{recorder: cfg.Recorder}
	s.metrics[latencies].Name = "/sched/latencies:seconds"
	s.metrics[runnable].Name = "/sched/goroutines/runnable:goroutines"
	if runtime.GOOS == "linux" {
		s.group.open("/")
	}
	now := s.read()
	if s.metrics[latencies].Value.Kind() == metrics.KindFloat64Histogram {
		s.measure(s.metrics[latencies].Value.Float64Histogram().Buckets)
	}
	s.compare(now)
	s.recorder.take(now.at)
	return s, nil
}

// measure makes room for delays in those ranges.
func (s *Sampler) measure(seconds []float64) {
	s.delays.bounds = boundaries(seconds)
	s.delays.counts = make([]uint64, len(seconds)-1)
	s.prev.counts = make([]uint64, len(seconds)-1)
}

// Sample reads every source and says what happened since the sample before, or since [New]. It allocates nothing. Of
// callers at the same time, one after the other samples, each the time since the one before: what one was told, no other
// is. So a Sampler should have one consumer.
//
// A sample takes a few microseconds, a few more once a second, when the cgroup is read. It may wait for whoever else
// reads runtime/metrics at the same time.
func (s *Sampler) Sample() Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.read()
	out := s.compare(now)
	out.Service = s.recorder.take(now.at)
	if !s.sampled {
		s.sampled = true
		out.Gap = 0
	}
	return out
}

// read asks every source. The counts it returns are the runtime's memory until the next read. The caller holds s.mu.
func (s *Sampler) read() facts {
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
	now.allowed = min(float64(now.procs), s.group.quota)
	return now
}

// compare says what happened between the last facts and these, which become the last. The caller holds s.mu.
func (s *Sampler) compare(now facts) Sample {
	out := Sample{At: now.at, Throttled: now.throttled, Gap: max(0, now.at.Sub(s.prev.at))}
	if now.counts != nil {
		since(s.delays.counts, s.prev.counts, now.counts)
		out.Lag = s.delays.lag()
	}
	// An amount that fell was not measured from where it is measured now, and without time there is no share of it.
	if used := now.used - s.prev.used; now.usedOK && s.prev.usedOK && used >= 0 && out.Gap > 0 {
		// Nobody knows when GOMAXPROCS or the quota changed; half way is as good a guess as any.
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

// lag is what a distribution of scheduling delays says.
func (d distribution) lag() Lag {
	n := d.count()
	if n == 0 {
		return Lag{}
	}
	return Lag{
		P50: d.quantile(0.50, n), P90: d.quantile(0.90, n), P99: d.quantile(0.99, n),
		Max: d.max(), Mean: d.mean(n), Count: n,
	}
}

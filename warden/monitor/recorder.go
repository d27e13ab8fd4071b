// SPDX-License-Identifier: Apache-2.0

// The recorder: the execution times since the last sample, and what runs at this moment.

package monitor

import (
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden/internal/histogram"
)

// Recorder records the start and end of executions, and feeds Sample.Service of its [Sampler]. Its methods are safe for
// concurrent use. They may wait microseconds for a mutex, and allocate nothing while no more run than have run before and the
// name is not new. A nil or zero Recorder records nothing.
//
// It takes about 14 KiB, and 0.6 KiB for each of at most 64 names.
type Recorder struct {
	epoch time.Time

	mu        sync.Mutex       // guards all below but total
	kinds     map[string]*kind // at most mostKinds
	others    kind             // all further ones
	idle      *run             // free list
	running   int
	parked    int           // of them, those that only wait: Span.Park
	area      time.Duration // execution time of the others, from taken to at
	at        time.Duration // last change of the area; this and taken are times since the epoch
	taken     time.Duration
	abandoned uint64
	lost      time.Duration // execution time of the abandoned
	needs     map[string]time.Duration
	counts    [ranges]uint64 // of the execution times since taken
	parts     []*Recorder
	name      string // of this part
	limit     int    // and its limit

	total distribution // a copy of counts that take looks at; the Sampler's mutex guards it
}

func newRecorder() *Recorder {
	r := &Recorder{epoch: time.Now(), kinds: map[string]*kind{}}
	r.total.counts = make([]uint64, ranges)
	r.total.bounds = make([]float64, ranges+1)
	for i := range r.total.bounds {
		r.total.bounds[i] = float64(begin(i))
	}
	return r
}

// Span is one running execution. The zero Span records nothing.
type Span struct {
	r      *Recorder
	run    *run
	number uint64
	away   time.Duration // not execution time
}

// Without returns the same span, whose execution time is d less than the time until its end: the execution only waited for its
// client meanwhile. It goes on counting in Service.Concurrency.
func (s Span) Without(d time.Duration) Span {
	s.away = d
	return s
}

// Start records that an execution begins, of the kind of work that has this name: a route, say. Names beyond 64
// are one kind together, until others have not been used for long: for as many minutes as they had ended executions, a day at most.
// End the Span with [Span.End], [Span.Abandon] or [Span.Discard], on any goroutine; one that is never ended counts in
// Service.Concurrency forever.
func (r *Recorder) Start(name string) Span {
	if r == nil || r.kinds == nil {
		return Span{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.idle
	if w == nil {
		w = new(run)
	}
	r.idle = w.younger
	w.start, w.name = r.advanceLocked(time.Since(r.epoch)), name
	r.kindOfLocked(name).push(w)
	r.running++
	return Span{r: r, run: w, number: w.number}
}

// End records the end of the execution and returns its execution time; 0 if it has ended before. Times of more than 36 minutes
// count as 36 minutes.
func (s Span) End() time.Duration { return s.end(done) }

// Abandon ends an execution that was cut off by its deadline or its client: the work would have taken longer, and may go on where
// it cannot be seen. It ends the concurrency and counts the execution only in Service.Abandoned.
func (s Span) Abandon() { s.end(abandoned) }

// Discard ends an execution whose time says nothing about the work, not even how long it takes at least: a connection was
// hijacked, or a stream has ended. It ends the concurrency and counts the execution nowhere.
func (s Span) Discard() { s.end(discarded) }

// outcome is how an execution ended.
type outcome uint8

const (
	done outcome = iota
	abandoned
	discarded
)

func (s Span) end(o outcome) time.Duration {
	r, w := s.r, s.run
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.number != s.number {
		return 0
	}
	now := r.advanceLocked(time.Since(r.epoch))
	took, k := max(0, now-w.start-s.away), w.kind
	if w.parked {
		took = w.began - w.start
		r.parked--
	}
	k.remove(w)
	w.number++
	w.younger, r.idle = r.idle, w
	r.running--
	switch o {
	case abandoned:
		r.abandoned++
		r.lost += took
	case done:
		r.counts[rangeOf(took)]++
		k.recent.add(took, now)
	case discarded:
	}
	return took
}

// advanceLocked adds the execution time until now to the area, and returns now, which never goes back.
func (r *Recorder) advanceLocked(now time.Duration) time.Duration {
	if now > r.at {
		r.area += time.Duration(r.running-r.parked) * (now - r.at)
		r.at = now
	}
	return r.at
}

// take returns what was recorded since the last take, without its parts. It is not called concurrently. When no time has passed,
// it takes nothing and leaves everything to the next call.
func (r *Recorder) take(at time.Time) Service {
	if r == nil || r.kinds == nil {
		return Service{}
	}
	r.mu.Lock()
	now := r.advanceLocked(at.Sub(r.epoch))
	elapsed := now - r.taken
	if elapsed <= 0 {
		r.mu.Unlock()
		clear(r.total.counts)
		return Service{}
	}
	r.forgetLocked(now)
	out := Service{
		Concurrency: float64(r.area) / float64(elapsed), Abandoned: r.abandoned, AbandonedTime: r.lost, Running: r.running,
		Parked: r.parked,
		Needs:  r.needsLocked(),
	}
	r.longLocked(now, &out)
	copy(r.total.counts, r.counts[:])
	clear(r.counts[:])
	r.area, r.abandoned, r.lost, r.taken = 0, 0, 0, now
	r.mu.Unlock()
	if r.total.describe(&out); out.Count != 0 {
		out.Throughput = float64(out.Count) / elapsed.Seconds()
	}
	return out
}

// describe sets count, percentiles and times of out.
func (d distribution) describe(out *Service) {
	if out.Count = d.count(); out.Count != 0 {
		out.P50, out.P90 = d.quantile(0.50, out.Count), d.quantile(0.90, out.Count)
		d.spaced(out.Times[:min(out.Count, uint64(len(out.Times)))], out.Count)
	}
}

const (
	// The histogram has ranges of 64 ns up to 1 us, and from there 16 ranges for each doubling up to 36 minutes: a range is
	// at most 1/16 of its value wide.
	fineBits  = 6
	groupBits = 4
	ranges    = histogram.Groups << groupBits
)

// rangeOf returns the range of d, which is not negative.
func rangeOf(d time.Duration) int { return histogram.RangeOf(d, fineBits, groupBits) }

// begin returns the lower bound of range i, the upper bound of the one before.
func begin(i int) time.Duration { return histogram.Begin(i, fineBits, groupBits) }

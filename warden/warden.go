// The warden: samples are taken in time, whoever takes them.

package warden

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// ErrRunning is returned by [Warden.Run] while another Run of the same warden has not returned.
var ErrRunning = errors.New("warden: is running already")

// Warden is a monitor, a controller and a limiter that work together. All its methods may be called by any number of
// goroutines. It must come from [New] and must not be copied; a nil or zero Warden refuses every call with an [*InvalidError].
type Warden struct {
	limiter    *limiter.Limiter
	name       string            // the limiter's
	recorder   *monitor.Recorder // nil if the sampler is not ours
	sampler    Sampler
	controller Controller
	also       Target
	interval   time.Duration
	epoch      time.Time

	running   atomic.Bool
	reentries atomic.Uint64
	sampled   atomic.Int64 // nanoseconds from epoch to the last sample; what requests look at

	mu      sync.Mutex // one turn at a time: held while a sample is taken, judged and applied, so foreign code must not call back
	kept    sync.Mutex // guards all below, written under mu as well; never held while foreign code runs, so that whoever looks need not wait for it
	stats   Stats
	last    Reading
	history ring
}

// Stats tell how well a warden was able to keep watch.
type Stats struct {
	// Samples is how many were taken, ByRequests how many of them by requests, because no ticker did in time.
	Samples, ByRequests uint64
	// LargestGap is the longest time between two samples so far.
	LargestGap time.Duration
	// Panics counts panics of Sampler, Controller and Also that were contained; the decision before stays in force, and
	// in time the one that it named for that case.
	Panics uint64
	// Reentries counts calls of Acquire and Do that were refused with a [*ReentryError].
	Reentries uint64
}

// Run takes a sample in every interval until ctx ends, and then returns nil. It blocks: start it with go. The error is
// [ErrRunning], or an [*InvalidError] for a nil ctx. A warden works without it, driven by requests, but then it recovers only
// as far as requests come; after Run has returned it goes on like that, and Run may be called again.
func (w *Warden) Run(ctx context.Context) error {
	switch {
	case ctx == nil:
		return &InvalidError{"ctx", "nil", "a context"}
	case !w.made():
		return notMade()
	}
	if !w.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer w.running.Store(false)
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			w.mu.Lock()
			w.turn(false)
			w.mu.Unlock()
		}
	}
}

// watch lets a request take the sample that is due. While Run is at work it gets half an interval's grace, so that
// requests only help where the ticker is late. Where nothing is due it costs a load and a reading of the clock. The error
// is for a nil or zero Warden.
func (w *Warden) watch() error {
	if !w.made() {
		return notMade()
	}
	if !w.overdue() || !w.mu.TryLock() {
		return nil
	}
	defer w.mu.Unlock()
	if w.overdue() { // and nobody was faster
		w.turn(true)
	}
	return nil
}

func (w *Warden) made() bool { return w != nil && w.limiter != nil }

func notMade() error { return &InvalidError{"Warden", "nil or zero", "one made by New"} }

func (w *Warden) overdue() bool {
	due := w.interval
	if w.running.Load() {
		due += w.interval / 2
	}
	return time.Since(w.epoch)-time.Duration(w.sampled.Load()) >= due
}

// turn takes a sample, has it judged, and applies the judgement. The caller holds mu. The time of the sample is noted
// before anything can fail, so that a broken part is not tried by every request.
func (w *Warden) turn(byRequest bool) {
	before := w.sampled.Swap(int64(time.Since(w.epoch)))
	w.kept.Lock()
	w.stats.Samples++
	if byRequest {
		w.stats.ByRequests++
	}
	w.stats.LargestGap = max(w.stats.LargestGap, time.Duration(w.sampled.Load()-before))
	w.kept.Unlock()
	defer func() {
		if recover() != nil {
			w.kept.Lock()
			w.stats.Panics++
			w.kept.Unlock()
		}
	}()
	s := w.sampler.Sample()
	d := w.controller.Step(s)
	d.Seq = max(d.Seq, w.last.Decision.Seq+1)
	w.limiter.Apply(d)
	w.remember(Reading{Sample: s, Decision: d, Limiter: w.limiter.Stats()})
	if w.also != nil {
		w.also.Apply(d)
	}
}

// Stats is a copy of the counters; those of a nil Warden are 0. It does not wait for a sample that is being taken.
func (w *Warden) Stats() Stats {
	if w == nil {
		return Stats{}
	}
	w.kept.Lock()
	defer w.kept.Unlock()
	s := w.stats
	s.Reentries = w.reentries.Load()
	return s
}

// Limiter is the limiter that runs the tasks, for its statistics and explanations. What it runs without [Warden.Acquire] or [Do]
// is not told to the monitor. Let nobody else Apply decisions to it. That of a nil Warden is nil.
func (w *Warden) Limiter() *limiter.Limiter {
	if w == nil {
		return nil
	}
	return w.limiter
}

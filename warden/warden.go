// SPDX-License-Identifier: Apache-2.0

// The warden: it takes samples in time, from its ticker or from requests.

package warden

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Warden combines a monitor, a controller and a limiter. All methods are safe for concurrent use. It must come from [New] and
// must not be copied; the methods of a nil or zero Warden return an [*InvalidError], or zero values and do nothing.
type Warden struct {
	limiter    *limiter.Limiter
	name       string            // the limiter's
	recorder   *monitor.Recorder // nil if the sampler is not ours
	sampler    sampler
	controller controller
	target     target
	interval   time.Duration
	remote     bool
	epoch      time.Time

	running   atomic.Bool
	began     atomic.Int64 // nanoseconds from epoch to the start of Run
	runKnown  atomic.Bool  // Run was called once, or the log says that it was not
	reentries atomic.Uint64
	sampled   atomic.Int64              // nanoseconds from epoch to the last sample; requests read it
	bounds    atomic.Pointer[inForce]   // written by New and by Adjust; requests read it
	load      atomic.Pointer[timedLoad] // written by turns; requests read it

	adjusting sync.Mutex // held by Adjust while change runs; taken before mu and readMu, and not by readers

	mu    sync.Mutex // held for a whole turn: sampler, controller and target run under it and must not call back
	meter loadMeter  // guarded by mu
	// guards all below, written under mu as well; no part of Config runs under it, so readers do not wait for one
	readMu  sync.Mutex
	stats   Stats
	last    Reading
	history ring
}

// Stats counts a warden's samples and failures.
type Stats struct {
	// Samples is the number of samples taken; ByRequests, of those, the number taken by requests because the ticker was late.
	Samples, ByRequests uint64
	// LargestGap is the longest time between two samples so far, or from New to the first.
	LargestGap time.Duration
	// Late is the number of samples that came more than half a second late while Run was active: the process was frozen, or starved
	// of processors. Without Run nobody can tell that from a pause between requests, and nothing is late.
	Late uint64
	// Panics counts recovered panics of Sampler, Controller and ApplyTo. After one of Sampler or of Controller's Step the
	// previous decision stays in force, until it expires and its Stale decision, if it has one, replaces it.
	Panics uint64
	// Reentries counts calls of Acquire and Do that were rejected with a [*decision.ReentryError].
	Reentries uint64
}

// lateBy is how much later than due a sample counts as late.
const lateBy = 500 * time.Millisecond

const runGrace = 10 * time.Second // after which a warden without Run is reported

// Run takes a sample in every interval until ctx ends, and then returns nil. It blocks: start it with go. The error, an
// [*InvalidError], means that ctx is nil, w is nil or zero, or another Run of this warden is active. A warden works without
// Run, driven by requests, but then recovers only as requests arrive: if Run has not been called ten seconds after New, the
// next request that takes a sample says so to slog.Default, once. After Run has returned, requests continue to drive the
// warden, and Run may be called again.
func (w *Warden) Run(ctx context.Context) error {
	switch {
	case ctx == nil:
		return invalidField("ctx", "nil", "a context")
	case !w.made():
		return notMade()
	}
	if !w.running.CompareAndSwap(false, true) {
		return invalidField("Run", "called while another one is active", "one at a time")
	}
	defer w.running.Store(false)
	w.began.Store(int64(time.Since(w.epoch)))
	w.runKnown.Store(true)
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			w.mu.Lock()
			w.turnLocked(false)
			w.mu.Unlock()
		}
	}
}

// sampleIfOverdue lets a request take an overdue sample. While Run is active, half an interval of grace lets requests help only
// when the ticker is late. Without an overdue sample the cost is an atomic load and a clock reading. The error is for a nil or
// zero Warden.
func (w *Warden) sampleIfOverdue() error {
	if !w.made() {
		return notMade()
	}
	if w.overdue() && w.mu.TryLock() {
		w.sampleAndUnlock()
		w.warnWithoutRun()
	}
	return nil
}

// sampleAndUnlock takes a sample for a request, unless another one was faster, and unlocks mu.
func (w *Warden) sampleAndUnlock() {
	defer w.mu.Unlock()
	if w.overdue() {
		w.turnLocked(true)
	}
}

// warnWithoutRun logs, once, that Run was probably forgotten. No lock is held, because the log's handler may block.
func (w *Warden) warnWithoutRun() {
	if w.runKnown.Load() || time.Since(w.epoch) < runGrace || w.runKnown.Swap(true) {
		return
	}
	slog.Warn(
		"stopbank: a warden without Run: call go w.Run(ctx), or its limit recovers only while requests arrive (this is logged once)",
		"warden", w.name,
	)
}

func (w *Warden) made() bool { return w != nil && w.limiter != nil }

func notMade() error { return invalidField("Warden", "nil or zero", "a warden made by New") }

func (w *Warden) overdue() bool {
	due := w.interval
	if w.running.Load() {
		due += w.interval / 2
	}
	return time.Since(w.epoch)-time.Duration(w.sampled.Load()) >= due
}

// turnLocked takes a sample, decides and applies the decision. The sample's time is recorded first, so that requests do not retry
// a part that panics.
func (w *Warden) turnLocked(byRequest bool) {
	before := w.sampled.Swap(int64(time.Since(w.epoch)))
	w.readMu.Lock()
	w.stats.Samples++
	if byRequest {
		w.stats.ByRequests++
	}
	now := w.sampled.Load()
	w.stats.LargestGap = max(w.stats.LargestGap, time.Duration(now-before))
	if w.running.Load() && time.Duration(now-max(before, w.began.Load())) > w.interval+lateBy {
		w.stats.Late++
	}
	w.readMu.Unlock()
	defer func() {
		if recover() != nil {
			w.readMu.Lock()
			w.stats.Panics++
			w.readMu.Unlock()
		}
	}()
	s := w.sampler.Sample()
	s.Remote = s.Remote || w.remote
	d := w.controller.Step(s)
	d.Seq = max(d.Seq, w.last.Decision.Seq+1)
	w.limiter.Apply(d)
	l := w.limiter.Stats()
	w.load.Store(w.meter.add(time.Duration(w.sampled.Load()), &s, &l))
	w.recordLocked(Reading{Sample: s, Decision: d, Limiter: l})
	if w.target != nil {
		w.target.Apply(d)
	}
}

// Stats returns a copy of the counters; all are 0 for a nil or zero Warden. It does not wait for a sample in progress.
func (w *Warden) Stats() Stats {
	if w == nil {
		return Stats{}
	}
	w.readMu.Lock()
	defer w.readMu.Unlock()
	s := w.stats
	s.Reentries = w.reentries.Load()
	return s
}

// Name returns the name of the limiter, under which errors, logs, metrics and the console know the warden; "" for a nil Warden.
func (w *Warden) Name() string {
	if w == nil {
		return ""
	}
	return w.name
}

// Limiter returns the limiter that runs the tasks, for statistics and explanations; nil for a nil Warden. Tasks started on it
// directly, not through [Warden.Acquire] or [Do], are invisible to the monitor. Do not Apply other decisions to it.
func (w *Warden) Limiter() *limiter.Limiter {
	if w == nil {
		return nil
	}
	return w.limiter
}

// SPDX-License-Identifier: Apache-2.0

// The service half: it finds the concurrency above which work waits for something that no signal of the process shows.

package control

import (
	"math"
	"slices"
	"time"

	"github.com/stopbank/stopbank/warden/monitor"
)

// Parameters of the service half. It compares the execution times of a window with a baseline, those of work that did not
// wait, and counts in executions rather than seconds: an execution may take a millisecond or a minute.
const (
	few  = 8   // minimum executions of a window
	many = 128 // executions after which a window without waiting is closed
	kept = 256 // execution times of the baseline

	noticed = 0.1 // minimum wait that counts, as a share of the baseline
	sure    = 3.5 // standard deviations by which a window must differ from the baseline

	// A cut leaves at most the share shallow of the concurrency, so that its effect exceeds chance, and at least the share deep.
	shallow = 0.75
	deep    = 0.2

	// A limit that has bounded the work for a while is tested even if nothing looked slow: otherwise a baseline learned during an
	// overload would never be detected. In execution times.
	testFirst, testSoon, testRarely = 12, 3, 64.0

	forget = 0.5 // time constant, in seconds, of the decay of the expected time while nothing runs

	wary = 0.02 // share of the usual growth after a cut that removed waiting; it doubles after each window without waiting
)

// service is the state of the service half.
type service struct {
	rate   float64 // executions that ended per second, of the last sample
	fed    bool    // some sample had execution times
	trust  float64 // 0 to 1: confidence in the baseline's execution time
	target float64 // the limit of this half, for what ends
	window window
	base   baseline

	long        long
	pools       pools
	abandonment abandonment
	unread      []string // the pools whose reading must not be used, with the problem

	phase  phase
	in     float64 // seconds in this phase
	from   window  // before the cut
	back   float64 // the limit before the cut
	tested bool    // the cut is a test

	longer    float64 // standard deviations by which the window's times are longer than the baseline's
	vain      bool    // this sample showed that a cut, which was no test, had removed work
	pace      float64 // of growth, 0 to 1
	limited   float64 // seconds for which the limit bounded the work since the last cut
	testAfter float64 // the limited time until the next test, in execution times

	rebased bool    // the baseline does not compare: see rebase
	sized   bool    // somebody chose the limit: it is not tested while nothing looks slow
	parted  bool    // the work runs in parts: not its times count as slow, but what they share:
	shared  float64 // the share of the execution times, 0 to 1, that every part waits for

	slow      bool    // for the reasons: the last sample was slow
	busy      bool    // processors were the bottleneck of the last window
	inflation float64 // and by how much
}

type phase uint8

const (
	watching  phase = iota // no probe
	settling               // the limit was cut; waiting work drains
	measuring              // the effect of the cut is measured
	halved                 // most executions were abandoned; what is completed is measured
)

// step processes the Service of a sample. busy is the recent utilization of the processors, which are calm or not, and ends the
// limit in force for what ends.
func (v *service) step(s monitor.Service, pools []monitor.PoolReading, dt, busy, initial, ends float64, calm bool) {
	v.rate = finite(s.Throughput)
	v.fed = v.fed || s.Count > 0 || finite(s.Concurrency) > 0
	v.long.observe(s, calm || len(v.base.times) > 0, ends)
	s.Concurrency = max(finite(s.Concurrency)-v.long.slots, 0)
	n, ended := s.Concurrency, v.window.add(s, dt, busy)
	if v.trust += (1 - v.trust) * ended / (ended + 4); ended == 0 && n == 0 {
		v.trust -= v.trust * toward(dt, forget)
	}
	v.in += dt
	if v.pools.observe(pools, finite(float64(s.Running-s.Parked)), v.long.slots, v.base.mean, dt); v.pools.full {
		v.followPools(n, ended)
		return
	}
	if v.abandoned(finite(float64(s.Abandoned)), seconds(s.AbandonedTime), n, ended, dt) {
		return
	}
	v.slow, v.busy = v.phase != watching, false
	w, r := &v.window, v.window.mean()
	switch {
	case v.phase == watching:
		v.watch(n, ended, dt, initial)
	case ended == 0 && n < 0.5, v.phase == measuring && n < 0.5*v.target && v.in > 2*r+0.5: // too little work for a result
		v.target = max(v.target, v.back)
		v.enter(watching)
	case v.phase == measuring:
		if len(w.times) >= 4*few && w.time >= r || len(w.times) >= few && w.time >= 4*r {
			v.conclude()
		}
	case n > 1.1*v.target+0.5:
		v.in = 0
	case v.in >= 1.2*min(v.from.mean(), v.target/v.from.throughput()):
		v.enter(measuring)
	}
}

func (v *service) enter(p phase) {
	v.phase, v.in, v.longer = p, 0, 0
	v.window.reset()
}

// watch grows the limit while it bounds the work and nothing waits, by the number of executions that end, and cuts it when
// something waits.
func (v *service) watch(n, ended, dt, initial float64) {
	w := &v.window
	limited := n >= 0.8*v.target
	r := w.mean()
	switch {
	case len(v.base.times) < few:
		if len(w.times) >= few {
			v.base.learn(w.times)
		}
	case len(w.times) >= few && w.time >= r:
		if v.compare() {
			return
		}
	}
	if n < 0.5 && v.target < initial {
		v.target = min(initial, v.target*math.Exp(dt)) // nothing runs: the cause of the cut may be gone
	}
	if limited && !v.slow && !v.busy {
		calm := min(max(2-v.longer/2, 0.3), 1) // grow more slowly while the window is possibly slow
		v.grow(ended * v.pace * calm)
		if v.parted { // its parts may let no more run, and a limit that is not in use is never cut
			v.target = min(v.target, n/0.8)
		}
	}
}

// compare compares the window with the baseline, and reports whether it cut the limit.
func (v *service) compare() bool {
	w, r := &v.window, v.window.mean()
	if w.busy > 0.9*w.time { // processors are the bottleneck, and their queue is the better guide
		w.reset()
		v.limited, v.busy = 0, true
		return false
	}
	if v.rebased {
		v.learnAnew()
		return false
	}
	n, x := w.concurrency(), w.throughput()
	wait, z := shift(v.base.sorted, w.inOrder())
	v.inflation = 1 + wait/v.base.lower
	if v.parted {
		wait, z, v.inflation = v.shared*r, 0, 1/(1-v.shared)
		if v.shared > 0 {
			z = 2 * sure
		}
	}
	if v.longer, v.slow = z, z > sure; v.slow && wait > noticed*v.base.lower && x*wait > 0.2 && n >= 0.7*v.target {
		// By Little's law x*wait executions wait.
		v.cut(min(n-x*wait, shallow*n), false)
		return true
	}
	if w.count < many && (w.time < 6*r || w.count < 2*few) {
		return false
	}
	if z < 2 { // otherwise a slowly growing queue would become the baseline
		v.base.learn(w.times)
	}
	v.pace = min(2*v.pace, 1)
	if v.limited += w.time; n < 0.9*math.Round(v.target) {
		v.limited = 0
	}
	// Where less ends than runs, by Little's law, a lower limit would not be reached.
	if !v.sized && v.target > 1 && v.limited > v.testAfter*r && x*r > 0.5*n {
		v.cut(shallow*n, true)
		return true
	}
	w.reset()
	return false
}

func (v *service) cut(to float64, test bool) {
	v.from, v.window = v.window, v.from
	v.back, v.tested, v.limited = v.target, test, 0
	v.target = min(v.target, max(math.Ceil(to), math.Floor(deep*v.from.concurrency()), 1))
	v.enter(settling)
}

// conclude decides whether a cut removed waiting, or throughput and has to be undone.
func (v *service) conclude() {
	w := &v.window
	waited, sd := v.waited()
	if math.Abs(waited-0.5) < sd && w.time < 8*w.mean() && w.count < 4*many {
		return // too uncertain yet
	}
	if waited < 0.5 {
		if !v.tested { // the work itself has become slower
			v.base.forget()
			v.vain = true
		}
		v.base.learn(w.times)
		v.target = v.back
		v.testAfter = min(2*max(v.testAfter, testFirst/2), testRarely)
	} else {
		// Where throughput fell as well, the cut went too deep by as much.
		v.target = max(v.target, min(v.back, math.Ceil(w.concurrency()*v.from.throughput()/w.throughput())))
		v.pace = wary
		if _, z := shift(v.base.sorted, w.inOrder()); z < -2 {
			v.base.forget()
			v.base.learn(w.times)
		}
		if v.tested {
			v.testAfter = testSoon
		}
	}
	v.enter(watching)
}

// waited estimates which part of the concurrency that was cut had been waiting, 1 for all, with its standard deviation: from
// the loss of throughput, and from the reduction of execution times. Each is weighted by its inverse variance.
func (v *service) waited() (part, sd float64) {
	w, f := &v.window, &v.from
	n, cut := w.concurrency(), f.concurrency()
	depth := math.Log(cut / max(n, 1e-9))
	if depth < 0.1 {
		return 1, 0
	}
	chance := 1/f.count + 1/w.count
	byThroughput := 1 - math.Log(f.throughput()/w.throughput())/depth
	doubt := v.base.spread / depth
	varThroughput := doubt*doubt*chance + 0.0025/(depth*depth)

	shorter, _ := shift(w.inOrder(), f.inOrder())
	hoped := (cut - n) / f.throughput()
	byTimes := shorter / hoped
	doubt = v.base.lower * min(v.base.spread, 1) / hoped
	coming := (cut/f.throughput() - f.mean()) / hoped // executions that had ended before were not yet as slow as later ones
	varTimes := 2*doubt*doubt*chance + coming*coming + 0.0025

	weight := 1/varThroughput + 1/varTimes
	return (byThroughput/varThroughput + byTimes/varTimes) / weight, math.Sqrt(1 / weight)
}

// expected returns the execution time, in seconds, of a task that does not wait inside; 0: unknown. It decays while nothing
// runs, because a limiter that rejects every task for its deadline would otherwise never learn that tasks are fast again.
func (v *service) expected() float64 { return v.trust * v.base.median }

// baseline holds the execution times, in seconds, of the last work that did not wait.
type baseline struct {
	times  []float64 // oldest first
	sorted []float64
	mean   float64
	lower  float64 // mean of the shorter half
	median float64
	spread float64 // standard deviation, in means
}

func (b *baseline) forget() { *b = baseline{times: b.times[:0], sorted: b.sorted[:0]} }

// learn adds times, at least one.
func (b *baseline) learn(times []float64) {
	b.times = append(b.times, times...)
	if more := len(b.times) - kept; more > 0 {
		b.times = append(b.times[:0], b.times[more:]...)
	}
	b.sorted = append(b.sorted[:0], b.times...)
	slices.Sort(b.sorted)
	b.mean, b.lower, b.median = mean(b.sorted), lower(b.sorted), b.sorted[len(b.sorted)/2]
	sum := 0.0
	for _, t := range b.sorted {
		sum += (t - b.mean) * (t - b.mean)
	}
	b.spread = math.Sqrt(sum/float64(len(b.sorted))) / b.mean
}

// window accumulates consecutive samples.
type window struct {
	time, work, count float64   // seconds; seconds of execution; executions
	busy              float64   // seconds of processors, per processor
	times             []float64 // of executions, in seconds
	sorted            []float64 // sorted copy, as of the last inOrder
}

func (w *window) reset() { *w = window{times: w.times[:0], sorted: w.sorted[:0]} }

// add adds a sample and returns the number of executions that ended. Without their times, executions count as not measured.
func (w *window) add(s monitor.Service, dt, busy float64) (ended float64) {
	for _, t := range s.Times[:min(s.Count, uint64(len(s.Times)))] {
		if t > 0 {
			w.times = append(w.times, min(t, time.Hour).Seconds())
			ended = float64(s.Count)
		}
	}
	if len(w.times) > 2*kept {
		for i := range w.times[:len(w.times)/2] {
			w.times[i] = w.times[2*i]
		}
		w.times = w.times[:len(w.times)/2]
	}
	w.time += dt
	w.work += finite(s.Concurrency) * dt
	w.count += ended
	w.busy += busy * dt
	return ended
}

func (w *window) inOrder() []float64 {
	w.sorted = append(w.sorted[:0], w.times...)
	slices.Sort(w.sorted)
	return w.sorted
}

func (w *window) mean() float64        { return mean(w.times) }
func (w *window) concurrency() float64 { return w.work / max(w.time, 1e-9) }
func (w *window) throughput() float64  { return max(w.count, 1e-9) / max(w.time, 1e-9) }

// The service half: how much may run before it waits for something that no signal of the process shows.

package control

import (
	"math"
	"slices"
	"time"

	"github.com/stopbank/stopbank/warden/monitor"
)

// What the service half goes by. It compares the execution times of a window with a baseline, those of work that did not wait, and
// counts in executions, never in seconds: an execution may take a millisecond or a minute.
const (
	few  = 8   // executions that a window has at least
	many = 128 // executions after which a window that shows no wait is closed
	kept = 256 // execution times of the baseline

	noticed = 0.1 // of the baseline: the shortest wait that counts
	sure    = 3.5 // standard deviations by which a window must differ from the baseline

	// A cut leaves this share of the concurrency at most, so that its outcome can be told from chance, and that at least.
	shallow = 0.75
	deep    = 0.2

	// A target that has limited the work for a while, though nothing looked slow, is put to the test: a baseline that was learned in an
	// overload would never show. In execution times.
	testFirst, testSoon, testRarely = 12, 3, 64.0

	forget = 0.5 // seconds in which the expected time fades, as a time constant, while nothing runs

	wary = 0.02 // of the usual growth, after a cut that took waiting away; twice as much after each window in which nothing waited
)

// service is the part of the controller's state that judges execution times.
type service struct {
	fed    bool    // some sample had a Service
	trust  float64 // 0 to 1: how much of the baseline's execution time is still to be expected
	target float64 // how much may run, as far as this half knows
	window window
	base   baseline

	phase  phase
	in     float64 // seconds in this phase
	from   window  // before the cut
	back   float64 // the target before the cut
	tested bool    // the cut is a test

	longer    float64 // standard deviations by which the window's times are longer than the baseline's
	pace      float64 // of growth, 0 to 1
	limited   float64 // seconds for which the target limited the work since the last cut
	testAfter float64 // execution times of that until the next test

	slow      bool    // for the reasons: the last sample was slow
	inflation float64 // and so much
}

type phase uint8

const (
	watching  phase = iota // nothing is being tried
	settling               // the target was cut; what waited inside is on its way out
	measuring              // what has come of the cut is being measured
)

// step takes in the Service of a sample. busy is how far processors were used lately.
func (v *service) step(s monitor.Service, dt, busy, initial float64) {
	n, ended := finite(s.Concurrency), v.window.add(s, dt, busy)
	v.fed = v.fed || s.Count > 0 || n > 0
	if v.trust += (1 - v.trust) * ended / (ended + 4); ended == 0 && n == 0 {
		v.trust -= v.trust * toward(dt, forget)
	}
	v.in += dt
	v.slow = v.phase != watching
	w, r := &v.window, v.window.mean()
	switch {
	case v.phase == watching:
		v.watch(n, ended, dt, initial)
	case ended == 0 && n < 0.5, v.phase == measuring && n < 0.5*v.target && v.in > 2*r+0.5: // there is too little work to tell
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

// watch lets the target grow while it limits the work and nothing waits, by as many as end, and cuts it when something does.
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
		v.target = min(initial, v.target*math.Exp(dt)) // nothing runs: whatever was wrong may be over
	}
	if limited && !v.slow {
		calm := min(max(2-v.longer/2, 0.3), 1) // what may yet turn out to be slow grows with less than its speed
		v.target += min(ended*v.pace*calm, v.target)
	}
}

// compare compares the window with the baseline, and says whether it has cut the target.
func (v *service) compare() bool {
	w, r := &v.window, v.window.mean()
	if w.busy > 0.9*w.time { // processors are the bottleneck, and their queue is the better guide
		w.reset()
		v.limited, v.slow = 0, true
		return false
	}
	n, x := w.concurrency(), w.throughput()
	wait, z := shift(v.base.sorted, w.inOrder())
	v.inflation = 1 + wait/v.base.lower
	if v.longer, v.slow = z, z > sure; v.slow && wait > noticed*v.base.lower && x*wait > 0.2 && n >= 0.7*v.target {
		// By Little's law x*wait of them wait.
		v.cut(min(n-x*wait, shallow*n), false)
		return true
	}
	if w.count < many && (w.time < 6*r || w.count < 2*few) {
		return false
	}
	if z < 2 { // else a queue that grows slowly would become the baseline
		v.base.learn(w.times)
	}
	v.pace = min(2*v.pace, 1)
	if v.limited += w.time; n < 0.9*math.Round(v.target) {
		v.limited = 0
	}
	if v.target > 1 && v.limited > v.testAfter*r {
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

// conclude decides whether a cut took waiting away, or work.
func (v *service) conclude() {
	w := &v.window
	waited, sd := v.waited()
	if math.Abs(waited-0.5) < sd && w.time < 8*w.mean() && w.count < 4*many {
		return // not sure yet
	}
	if waited < 0.5 {
		if !v.tested { // so this is how long the work takes now
			v.base.forget()
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

// waited is which part of what was cut off had waited, 1 for all, and the standard deviation of that: by how much less got done, and by
// how much shorter the execution times are. Each counts by how little it is left to chance.
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
	coming := (cut/f.throughput() - f.mean()) / hoped // what had ended by then was not yet as slow as what was to come
	varTimes := 2*doubt*doubt*chance + coming*coming + 0.0025

	weight := 1/varThroughput + 1/varTimes
	return (byThroughput/varThroughput + byTimes/varTimes) / weight, math.Sqrt(1 / weight)
}

// expected is the execution time, in seconds, of a task that does not wait inside; 0: unknown. It fades while nothing runs, because a
// limiter that refuses whatever cannot end in time would else never see that it could again.
func (v *service) expected() float64 { return v.trust * v.base.median }

// baseline is the execution times of the last work that did not wait, in seconds.
type baseline struct {
	times  []float64 // the oldest first
	sorted []float64
	mean   float64
	lower  float64 // mean of the shorter half
	median float64
	spread float64 // standard deviation, in means
}

func (b *baseline) forget() { *b = baseline{times: b.times[:0], sorted: b.sorted[:0]} }

// learn adds times, of which there is at least one.
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

// window sums up consecutive samples.
type window struct {
	time, work, count float64   // seconds; seconds of execution; executions
	busy              float64   // seconds of processors, per processor
	times             []float64 // of executions, in seconds
	sorted            []float64 // the same when they were last needed in order
}

func (w *window) reset() { *w = window{times: w.times[:0], sorted: w.sorted[:0]} }

// add takes in a sample and says how many executions ended. Those whose times are not told were not read.
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

// mean is 0 of nothing.
func mean(times []float64) float64 {
	sum := 0.0
	for _, t := range times {
		sum += t
	}
	return sum / max(float64(len(times)), 1)
}

// lower is the mean of the shorter half of sorted times: what waits is longer by the wait, however long the longest are.
func lower(sorted []float64) float64 { return mean(sorted[:(len(sorted)+1)/2]) }

// shift is by how much b is longer than a, by the lower halves, and how sure it is that it is longer at all: the standard score of Mann's
// and Whitney's test (1947). Both are in order, and may not be empty. Times that differ by less than a thousandth are the same.
func shift(a, b []float64) (by, z float64) {
	m, n := float64(len(a)), float64(len(b))
	u := 0.0
	shorter, longer := 0, 0 // a[:shorter] are shorter than x, a[longer:] are longer
	for _, x := range b {
		for shorter < len(a) && a[shorter]*1.001 < x {
			shorter++
		}
		for longer < len(a) && a[longer]*0.999 <= x {
			longer++
		}
		u += float64(shorter+longer) / 2
	}
	return lower(b) - lower(a), (u - m*n/2) / math.Sqrt(m*n*(m+n+1)/12)
}

// The service half: how much may run before it waits for something that no signal of the process shows.

package control

import (
	"math"
	"slices"

	"github.com/stopbank/stopbank/warden/monitor"
)

const (
	few     = 8    // executions that a window has at least
	many    = 128   // executions after which a window that shows no wait is closed
	deepest = 0.2  // a cut leaves at least this share
	tested  = 0.75 // the share that a test runs at
	rare    = 64.0 // execution times between two tests at most
)

// service is the part of the controller's state that judges execution times.
type service struct {
	fed    bool
	target float64
	busy   float64 // smoothed utilisation before this sample

	w    window
	base []float64 // execution times when nothing waits, the oldest first
	knee float64   // a concurrency beyond which work has been seen to wait; 0: unknown

	phase  phase
	waited float64 // seconds in this phase
	from   point   // before the cut
	back   float64 // the target before it
	test   bool    // the cut is a test: nothing looked slow

	held  float64 // seconds for which the target limited the work, without a test
	every float64 // execution times of that until the next test

	slow      bool
	inflation float64
}

type phase uint8

const (
	open      phase = iota // the target follows what is seen
	settling               // the target was cut; what ran before is on its way out
	measuring              // what comes of it is being measured
)

// point is what a window has shown.
type point struct {
	n, x, r, count float64
	times          []float64
}

// step takes in the Service of a sample. target is the one that rules.
func (v *service) step(s monitor.Service, dt, target float64, used float64) {
	n, count := finite(s.Concurrency), float64(s.Count)
	v.fed = v.fed || count > 0 || n > 0
	v.waited += dt
	v.w.add(s, dt)
	v.w.used += used * dt
	limited := n >= 0.8*v.target
	v.slow = false
	r := v.w.mean()
	if r == 0 {
		r = mean(v.base)
	}
	switch v.phase {
	case open:
		v.watch(dt, count, limited, r)
	case settling:
		v.slow = true
		if n <= 1.1*v.target+0.5 {
			if v.waited >= 1.2*v.from.r {
				v.phase, v.waited, v.w = measuring, 0, window{}
			}
		} else {
			v.waited = 0
		}
	case measuring:
		v.slow = true
		if n < 0.5*v.target && v.waited > 2*r+0.5 {
			v.phase, v.waited, v.w = open, 0, window{}
			v.target = max(v.target, v.back) // there is too little work to tell
			break
		}
		if v.w.count >= 4*few && v.w.time >= r || v.w.count >= few && v.w.time >= 4*r {
			v.conclude(r)
		}
	}
}

func (v *service) watch(dt, count float64, limited bool, r float64) {
	w := &v.w
	if len(v.base) < few {
		if w.count >= few {
			v.learn()
		}
		if limited {
			v.grow(count)
		}
		return
	}
	if w.count < few || w.time < r {
		if limited {
			v.grow(count * 0.5)
		}
		return
	}
	wait, z := shift(v.base, w.all())
	n, x := w.concurrency(), w.throughput()
	v.inflation = 1 + wait/lower(v.base)
	if w.used > 0.9*w.time { // processors are the bottleneck, and their queue is the better guide
		*w = window{}
		v.held = 0
		return
	}
	full := w.count >= many || w.time >= 6*r && w.count >= 2*few
	isLimited := n >= 0.7*v.target
	switch {
	case wait > 0.1*lower(v.base) && z > sure:
		v.slow = true
		if isLimited && x*wait > 0.2 || x*wait > 1 {
			to := n - x*wait*0.9
			if len(v.base) >= 2*few {
				to = min(to, x*mean(v.base)*(1.1+2*spread(v.base)*math.Sqrt(1/float64(len(v.base))+1/w.count)))
			}
			v.cut(point{n, x, r, w.count, w.all()}, min(to, tested*n), false)
			return
		}
	case limited && z < 2:
		v.grow(count)
	}
	if !full {
		return
	}
	v.learn()
	if isLimited {
		v.held += w.time
	} else {
		v.held = 0
	}
	if v.every == 0 {
		v.every = 12
	}
	if v.knee > 0 && v.target > 1.3*v.knee {
		v.knee = 0
	}
	if v.held > v.every*r && v.target > 1 && isLimited {
		v.cut(point{n, x, r, w.count, w.all()}, tested*n, true)
		return
	}
	v.w = window{}
}

// grow lets one more run for each execution that ended: twice as many in an execution time.
func (v *service) grow(count float64) {
	if v.knee > 0 && v.target >= 0.9*v.knee {
		count = count * 0.05
	}
	v.target += min(count, v.target)
}

const kept = 256

func (v *service) learn() {
	v.base = append(v.base, v.w.all()...)
	if len(v.base) > kept {
		v.base = v.base[len(v.base)-kept:]
	}
}

func (v *service) cut(from point, to float64, test bool) {
	v.from, v.back, v.test = from, v.target, test
	v.target = max(math.Ceil(to), math.Floor(deepest*from.n), 1)
	v.phase, v.waited, v.w, v.held = settling, 0, window{}, 0
}

// conclude compares what is done now with what was done before the cut.
func (v *service) conclude(r float64) {
	n := v.w.concurrency()
	times := v.w.all()
	quicker, sd := v.quicker(n, v.w.throughput(), v.w.count, times)
	if math.Abs(quicker-0.5) < sd && v.w.time < 8*r && v.w.count < 4*many {
		return
	}
	v.phase, v.waited = open, 0
	switch {
	case quicker < 0.5:
		// It was work: less ran, and nothing was quicker.
		if !v.test {
			v.base = v.base[:0]
		}
		v.learn()
		v.target = v.back
		v.every = min(2*max(v.every, 6), rare)
	default:
		// It had waited; where throughput fell as well, the cut went too deep by as much.
		v.target = max(v.target, min(v.back, math.Ceil(n*v.from.x/max(v.w.throughput(), 1e-9))))
		v.knee = v.target
		if _, z := shift(v.base, times); z < -2 {
			v.base = v.base[:0]
			v.learn()
		}
		if v.test {
			v.every = 3
		}
	}
	v.w = window{}
}

// quicker is how much of what was cut off had waited, 0 to 1: by how much less got done, and by how much shorter the execution times
// are. Each counts by how little it is left to chance.
func (v *service) quicker(n, x, count float64, times []float64) (share, sd float64) {
	f := &v.from
	depth := math.Log(f.n / max(n, 1e-9))
	if depth < 0.1 {
		return 1, 0
	}
	byThroughput := 1 - math.Log(f.x/max(x, 1e-9))/depth
	cv := spread(v.base)
	varX := (cv*cv*(1/f.count+1/max(count, 1)) + 0.0025) / (depth * depth)

	gain, _ := shift(times, f.times)
	hoped := (f.n - n) / max(f.x, 1e-9)
	byTimes := gain / hoped
	l := lower(v.base)
	sdT := l * math.Min(cv, 1) * math.Sqrt(2/f.count+2/max(count, 1)) / hoped
	ramp := (f.n/max(f.x, 1e-9) - f.r) / hoped // what ran was not yet what was to come of it
	varT := sdT*sdT + 0.0025 + ramp*ramp
	return (byThroughput/varX + byTimes/varT) / (1/varX + 1/varT), math.Sqrt(1 / (1/varX + 1/varT))
}

// spread is the coefficient of variation.
func spread(times []float64) float64 {
	m := mean(times)
	sum := 0.0
	for _, t := range times {
		sum += (t - m) * (t - m)
	}
	return math.Sqrt(sum/max(float64(len(times)), 1)) / max(m, 1e-12)
}

const sure = 3.5

// lower is the mean of the lower half.
func lower(times []float64) float64 {
	t := slices.Sorted(slices.Values(times))
	return mean(t[:(len(t)+1)/2])
}

func mean(times []float64) float64 {
	if len(times) == 0 {
		return 0
	}
	sum := 0.0
	for _, t := range times {
		sum += t
	}
	return sum / float64(len(times))
}

// shift is by how much the lower half of b is longer than that of a, and how sure it is that b is longer at all: the z of Mann and
// Whitney's test.
func shift(a, b []float64) (by, z float64) {
	u := 0.0
	for _, x := range b {
		for _, y := range a {
			switch {
			case x > y*1.001:
				u++
			case x >= y*0.999:
				u += 0.5
			}
		}
	}
	m, n := float64(len(a)), float64(len(b))
	if m == 0 || n == 0 {
		return 0, 0
	}
	return lower(b) - lower(a), (u - m*n/2) / math.Sqrt(m*n*(m+n+1)/12)
}

// expected is the execution time of a task that does not wait inside.
func (v *service) expected() float64 {
	if len(v.base) == 0 {
		return 0
	}
	t := slices.Sorted(slices.Values(v.base))
	return min(t[len(t)/2], 3600)
}

// window sums up consecutive samples.
type window struct {
	time, work, count float64 // seconds; seconds of execution; executions
	used              float64 // seconds of processors, per processor
	times             []float64
}

func (w *window) add(s monitor.Service, dt float64) {
	w.time += dt
	w.work += finite(s.Concurrency) * dt
	w.count += float64(s.Count)
	for _, t := range s.Times {
		w.times = append(w.times, seconds(t))
	}
	if len(w.times) > 2*kept {
		for i := range w.times[:len(w.times)/2] {
			w.times[i] = w.times[2*i]
		}
		w.times = w.times[:len(w.times)/2]
	}
}

func (w *window) all() []float64 { return slices.Clone(w.times) }

func (w *window) mean() float64 { return mean(w.times) }

func (w *window) concurrency() float64 { return w.work / max(w.time, 1e-9) }
func (w *window) throughput() float64  { return w.count / max(w.time, 1e-9) }

// History: samples summed up over a window, and execution times with the baseline that they are compared to.

package control

import "github.com/stopbank/stopbank/warden/monitor"

// window sums up consecutive samples.
type window struct {
	time, work, count float64 // seconds; seconds of execution; executions
}

func (w *window) add(s monitor.Service, dt float64) {
	w.time += dt
	w.work += finite(s.Concurrency) * dt
	w.count += finite(s.Throughput) * dt
}

// enough says whether the window is long enough to tell a throughput from chance.
func (w *window) enough(execution float64) bool {
	return w.time >= shortest(execution) && (w.count >= 64 || w.time >= 2 && w.count >= 16 || w.time >= 5)
}

// fade halves a window that has become twice as long as necessary, so that it tells of now.
func (w *window) fade(execution float64) {
	if w.time > 2*shortest(execution) && w.count > 128 {
		w.time, w.work, w.count = w.time/2, w.work/2, w.count/2
	}
}

// shortest is the time, in seconds, in which what was started under other conditions has ended.
func shortest(execution float64) float64 { return max(0.3, 2*min(execution, 1)) }

func (w *window) concurrency() float64 { return w.work / w.time }
func (w *window) throughput() float64  { return w.count / w.time }

// quantile is the history of one percentile of execution times, in seconds.
type quantile struct {
	now  float64 // smoothed over some tens of executions; 0: unknown
	base float64 // the baseline: now, when nothing waits; 0: unknown
	sum  float64 // of readings, weighted by executions, since the baseline was last looked at
	n    float64
}

// read takes in a reading that stands on count executions, and returns the inflation by the baseline as it was before:
// else a longer execution time could raise a baseline just being learned and look like less (C2). The baseline follows
// downwards only, and only long windows, because the least of many noisy readings is too small.
func (q *quantile) read(x, count float64) (inflation float64) {
	if q.now == 0 {
		q.now = x
	}
	q.now += (x - q.now) * count / (count + 48)
	inflation = q.inflation()
	q.sum += x * count
	q.n += count
	switch mean := q.sum / q.n; {
	case q.base == 0 && q.n >= 16:
		q.base = mean
	case q.n < 128:
		return inflation
	case mean < q.base:
		q.base += (mean - q.base) / 2
	}
	q.sum, q.n = 0, 0
	return inflation
}

func (q *quantile) inflation() float64 {
	if q.base <= 0 {
		return 1
	}
	return max(q.now/q.base, 1)
}

// forget moves towards the baseline by dt seconds, from no further than ten times it, so that it takes seconds and no more.
func (q *quantile) forget(dt float64) {
	now := min(q.now, 10*q.base)
	q.now = now - max(now-q.base, 0)*toward(dt, 1)
}

// SPDX-License-Identifier: Apache-2.0

// Pressure: the overload signal, from 0 to 1, of work that waits for processors, and the measurement behind it.

package control

import (
	"math"
	"time"

	"github.com/stopbank/stopbank/warden/monitor"
)

// The bands of pressure. Below growBelow the limit grows, above shrinkAbove it shrinks, above shedAbove shedding rises. The
// speed depends on the distance from the band, so there are no jumps.
const (
	growBelow   = 0.35
	shrinkAbove = 0.5
	shedAbove   = 0.8
	calmBelow   = 0.65 // shedding falls below it
)

// waiting is the number of runnable goroutines per processor near which the limit starts to fall: at 8.5.
const waiting = 8.0

// The pressure follows a rising signal within a few samples, and a falling one within a second.
const (
	riseTime = 0.1 // seconds, as time constants
	fallTime = 0.4
)

// signal is one measurement scaled to a level from 0 to 1, with shrinkAbove at the configured limit.
type signal struct {
	name  string
	value float64 // as measured, in the unit of the name
	level float64
}

// elsewhere is the signal of a sample whose work runs in other processes: it says nothing against any limit.
const elsewhere = "remote"

// related returns the sample without the processors that its work does not run on.
func related(s monitor.Sample) monitor.Sample {
	if s.Remote {
		s.Lag, s.Utilization, s.Runnable = monitor.Lag{}, monitor.Reading{}, monitor.Reading{}
		s.Throttled, s.Share, s.Processors = monitor.Reading{}, monitor.Reading{}, 0
	}
	return s
}

// ramp is 0 up to lo, 1 from hi on, and a smooth cubic between.
func ramp(x, lo, hi float64) float64 {
	x = min(max((x-lo)/(hi-lo), 0), 1)
	return x * x * (3 - 2*x)
}

// finite maps NaN to 0 and clamps to [0, 1e12], which keeps the algorithm monotone (C2).
func finite(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return min(max(x, 0), 1e12)
}

func seconds(d time.Duration) float64 { return max(d.Seconds(), 0) }

// ok reports whether a reading was measured.
func ok(r monitor.Reading) bool { return r.OK && !math.IsNaN(r.Value) }

// dominant returns the signal with the highest level; informed is false if the sample has no information about processors. used
// is the smoothed utilization before the sample.
func (cfg Config) dominant(s monitor.Sample, used float64) (top signal, informed bool) {
	if s.Remote {
		return signal{name: elsewhere}, true
	}
	cfg.each(s, used, func(name string, value, level float64) {
		if !informed || level > top.level {
			top, informed = signal{name, value, level}, true
		}
	})
	return top, informed
}

// each passes every measured signal to consider. The level of utilization stays below shrinkAbove: a busy processor without a
// queue is healthy (C5).
//
// A delay is weighted by the number of observations: one long delay among three is no evidence. Short delays need no such
// weight, because their level is 0 anyway (C8). The number of runnable goroutines at one instant includes new arrivals, so it
// tells less than how long they waited. Its weight is the uncertainty of the delays, and rises to 1 with the median delay:
// when tasks share a processor in small time slices, all wait, and none for long.
func (cfg Config) each(s monitor.Sample, used float64, consider func(name string, value, level float64)) {
	share, full := shareOf(s), ramp(used, 0.85, 0.97)
	if ok(s.Utilization) {
		u := finite(s.Utilization.Value)
		consider("utilization", u, 0.45*ramp(u/share, 0.9, 1))
	}
	n := float64(s.Lag.Count)
	sure := n / (n + 4)
	// While processors have idle time, twice the delay is tolerable: bursts cause it, and another limit would not help.
	lag := cfg.Lag.Seconds() * (2 - full)
	// Where others take processors, work waits for these as well, and a lower limit would not help: delays and queues count in the
	// processor time that we get. As far as all of that is used, the queue is ours.
	scale := math.Pow(share, 1-full/2)
	p90, p50 := scale*seconds(s.Lag.P90), scale*seconds(s.Lag.P50)
	if ok(s.Runnable) {
		r := finite(s.Runnable.Value)
		weight := 1 - sure + sure*ramp(p50, 0.02*lag, 0.08*lag)
		consider("runnable_per_processor", r, weight*0.75*ramp(math.Pow(share, 1-full)*r, 0.2*waiting, 1.6*waiting))
	}
	if s.Lag.Count > 0 {
		consider("lag_p90_seconds", seconds(s.Lag.P90), sure*ramp(p90, 0.4*lag, 1.6*lag))
		consider("lag_p50_seconds", seconds(s.Lag.P50), sure*ramp(p50, 0.2*lag, 0.8*lag))
	}
	if ok(s.Throttled) && (ok(s.Utilization) || ok(s.Runnable) || s.Lag.Count > 0) { // alone it says nothing about the present
		share := finite(s.Throttled.Value)
		consider("throttled_share", share, ramp(share, 0.1, 0.7))
	}
}

// toward returns the share of the distance that a first-order filter with this time constant covers in dt; both in seconds.
func toward(dt, constant float64) float64 { return 1 - math.Exp(-dt/constant) }

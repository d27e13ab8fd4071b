// Pressure: how much work waits for processors, as one number from 0 to 1, and which signal says so.

package control

import (
	"math"
	"time"

	"github.com/stopbank/stopbank/warden/monitor"
)

// The bands of pressure. Below growBelow the target grows, above shrinkAbove it shrinks, above shedAbove shedding rises. How
// fast depends on the distance from the band, so that nothing switches on or off.
const (
	growBelow   = 0.35
	shrinkAbove = 0.5
	shedAbove   = 0.8
	calmBelow   = 0.65 // shedding falls below it
)

// Pressure follows its signals up within a few samples and down in a second.
const (
	riseTime = 0.1 // seconds, as time constants
	fallTime = 0.4
)

// signal is one reading made comparable: level 0..1 with shrinkAbove at what the Config calls too much.
type signal struct {
	name  string
	value float64 // as it was read, in the unit of the name
	level float64
}

// ramp is 0 up to lo, 1 from hi on, and a cubic without corners between them.
func ramp(x, lo, hi float64) float64 {
	x = min(max((x-lo)/(hi-lo), 0), 1)
	return x * x * (3 - 2*x)
}

// finite makes any float a number: NaN is 0 and infinities are large, so that more never becomes less.
func finite(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return min(max(x, 0), 1e12)
}

func seconds(d time.Duration) float64 { return max(d.Seconds(), 0) }

// ok says whether a reading says anything.
func ok(r monitor.Reading) bool { return r.OK && !math.IsNaN(r.Value) }

// judge returns the signal with the highest level; informed is false when the sample knows nothing about processors. used is
// the smoothed utilisation before the sample.
func (cfg Config) judge(s monitor.Sample, used float64) (top signal, informed bool) {
	cfg.each(s, used, func(name string, value, level float64) {
		if !informed || level > top.level {
			top, informed = signal{name, value, level}, true
		}
	})
	return top, informed
}

// each gives every signal that the sample has to consider, utilisation held below shrinkAbove: a busy processor without a
// queue is health (C5).
//
// A delay counts by how many observations it stands on: one long one among three is no evidence. Few observations of short
// delays need no such doubt, because the level of a short delay is 0 anyway (C8). How many goroutines are runnable at one
// instant, arrivals among them, tells less than how long they had to wait. It counts by what the delays leave in doubt; and
// in full where waiting is the rule, by the median delay, because tasks that share a processor in small pieces all wait, and
// none for long.
func (cfg Config) each(s monitor.Sample, used float64, consider func(name string, value, level float64)) {
	if ok(s.Utilization) {
		u := finite(s.Utilization.Value)
		consider("utilization", u, 0.45*ramp(u, 0.9, 1))
	}
	n := float64(s.Lag.Count)
	sure := n / (n + 4)
	// While processor time is left over, twice the delay is tolerable: bursts cause it, and another target would not help.
	lag := cfg.Lag.Seconds() * (2 - ramp(used, 0.85, 0.97))
	p90, p50 := seconds(s.Lag.P90), seconds(s.Lag.P50)
	if ok(s.Runnable) {
		r := finite(s.Runnable.Value)
		consider("runnable_per_processor", r, (1-sure+sure*ramp(p50, 0.02*lag, 0.08*lag))*0.75*ramp(r, 0.2*cfg.Runnable, 1.6*cfg.Runnable))
	}
	if s.Lag.Count > 0 {
		consider("lag_p90_seconds", p90, sure*ramp(p90, 0.4*lag, 1.6*lag))
		consider("lag_p50_seconds", p50, sure*ramp(p50, 0.2*lag, 0.8*lag))
	}
	if ok(s.Throttled) && (ok(s.Utilization) || ok(s.Runnable) || s.Lag.Count > 0) { // by itself it says nothing of now
		share := finite(s.Throttled.Value)
		consider("throttled_share", share, ramp(share, 0.1, 0.7))
	}
}

// toward is the share of the way that a first-order filter with this time constant goes in dt; all in seconds.
func toward(dt, constant float64) float64 { return 1 - math.Exp(-dt/constant) }

// The knee: whether work is slow because it waits behind its own kind (C11), found out by running less of it for a moment.

package control

import (
	"math"

	"github.com/stopbank/stopbank/warden/monitor"
)

// Inflation is execution time over its baseline, what the same work takes when it does not wait. Growth stops on the way
// from free to full, and from suspect on the target is tried. From sudden on, with no more running than when all was quick, it is
// the work that has become slower.
const (
	free    = 1.05
	full    = 1.15
	suspect = 1.4
	sudden  = 2.0
)

// A trial runs at this share of the concurrency before it. If throughput falls with it by more than half as much, on a
// logarithmic scale, then what ran was at work and not waiting.
const (
	depth    = 0.7
	deepest  = 0.4 // of the concurrency, once waiting has been confirmed
	verdict  = 0.5
	easeRate = 0.6 // per second, at which a target shrinks that is only a little too high
	ample    = 16  // unused room of up to this much is nothing to worry about
)

// While the target limits the work, the baseline is put to the test now and then even if nothing looks inflated: a
// baseline that was learned in an overload is too high and would never show it. Seconds.
const (
	recheckNew   = 0.8 // of a baseline that has never been tested
	recheckSoon  = 3.0
	recheckFirst = 10.0
	recheckLast  = 40.0
)

type phase uint8

const (
	watching  phase = iota // nothing is being tried
	settling               // the target was cut; what ran before is on its way out
	measuring              // throughput at the lower concurrency is being counted
)

// knee is the part of the controller's state that judges execution times.
type knee struct {
	fed      bool // some sample had a Service
	p50, p90 quantile
	busy     float64 // smoothed utilisation before this sample

	phase         phase
	steady        window  // while watching and limited: what a trial will compare with
	trial         window  // while measuring
	fromN, fromX  float64 // concurrency and throughput before the cut
	fromR         float64 // and the execution time
	cut           float64 // the target while a trial is under way
	before        float64 // the target before the trial
	waited        float64 // seconds in this phase
	was           float64 // the baseline before the trial
	easy          float64 // a concurrency at which nothing was inflated
	high          float64 // the highest target since the last trial, from which it may be eased down so far
	usual         float64 // inflation, smoothed, while it is nothing special
	following     float64 // seconds for which the baseline still follows work that has become slower
	trust         float64 // 0..1: how much of the execution times is still to be expected
	suspected     bool    // the trial was started because of inflation
	confirmed     bool    // an earlier step of this trial has shown waiting
	limited       float64 // seconds for which the target limited the work, without a trial
	recheck       float64 // seconds of that until the baseline is tested; 0: recheckNew
	restore       float64 // a target to be returned to without use, because a trial took it; 0: none
	inflation     float64 // of this sample, for the reasons
	growth, limit float64 // what this sample allows: share of the growth, and the target to shrink towards
}

// step takes in the Service of a sample. Afterwards growth is the share of its growth that the target may have, 0..1, and
// limit the target to shrink towards, +Inf for none.
//
// For C2, execution times may only ever tighten within one step: whether a trial ends, and how, depends on
// Throughput, Concurrency and time alone. What it teaches about the baseline takes effect with the next sample.
func (k *knee) step(s monitor.Service, dt, target float64) {
	concurrency, count := finite(s.Concurrency), float64(s.Count)
	k.fed = k.fed || s.Count > 0 || concurrency > 0
	var inflation float64
	if s.Count > 0 {
		inflation = k.p50.read(seconds(s.P50), count)
		if s.Count >= 20 { // of fewer, the 90th percentile is little more than the longest
			inflation = max(inflation, math.Sqrt(k.p90.read(seconds(s.P90), count))) // it is twice as noisy
		}
		k.trust += (1 - k.trust) * count / (count + 4)
	} else {
		if concurrency < 0.5 {
			// Nothing runs: what was slow about the past says less and less.
			k.p50.forget(dt)
			k.p90.forget(dt)
			k.trust -= k.trust * toward(dt, 0.5)
		}
		inflation = k.p50.inflation()
	}
	// A busy processor stretches execution times too, and there the queue for processors is the better guide.
	idle := 1 - ramp(k.busy, 0.8, 0.95)
	k.inflation = 1 + (inflation-1)*idle
	k.growth, k.limit = 1-ramp(k.inflation, free, full), math.Inf(1)

	if k.inflation >= full {
		k.easy -= k.easy * toward(dt, 5)
	} else if concurrency > k.easy {
		k.easy += (concurrency - k.easy) * toward(dt, k.p50.now+16/max(finite(s.Throughput), 1))
	}
	if k.phase != watching && idle < 0.5 {
		k.restore = k.before
		k.end(recheckFirst)
	}
	k.waited += dt
	switch k.phase {
	case watching:
		k.watch(s, dt, target, idle)
	case settling:
		k.growth, k.limit = 0, k.cut
		if k.lapsed(concurrency) {
			k.end(recheckFirst)
		} else if concurrency <= 1.1*k.cut && k.waited >= 1.2*min(k.p50.now, 5) {
			k.phase, k.trial, k.waited = measuring, window{}, 0
		}
	case measuring:
		k.growth, k.limit = 0, k.cut
		k.trial.add(s, dt)
		if k.lapsed(concurrency) {
			k.end(recheckFirst)
		} else if k.trial.enough(k.p50.now) {
			k.conclude()
		}
	}
	k.follow(s, dt)
}

// follow makes the baseline follow work that has become slower by itself: no more runs than when it was quick, so it is not
// its own crowd that it waits for. Should what serves it have become fewer, the trial that is due soon will find out.
func (k *knee) follow(s monitor.Service, dt float64) {
	k.following = max(0, k.following-dt)
	alone := s.Count > 0 && finite(s.Concurrency) <= 1.1*k.easy
	switch {
	case alone && (k.p50.inflation() >= sudden || k.following > 0 && k.p50.inflation() > k.usual):
		if k.following == 0 {
			k.following = 1 + 3*min(k.p50.now, 3) + 64/max(finite(s.Throughput), 16)
		}
		if k.phase != watching {
			k.restore = k.before
		}
		k.learn(k.usual)
		k.end(recheckSoon)
	case k.inflation < suspect:
		k.usual += (k.inflation - k.usual) * toward(dt, 2)
	}
}

// watch looks for a reason to start a trial.
func (k *knee) watch(s monitor.Service, dt, target, idle float64) {
	concurrency := finite(s.Concurrency)
	if concurrency < 0.8*target || idle < 0.5 {
		k.steady, k.limited = window{}, 0
		if k.inflation >= suspect {
			// Unused room is no experiment: taking it away harms nobody, and shortens the way down if this is an overload.
			k.limit = max(1.5*concurrency, ample)
			k.growth = 0
		}
		return
	}
	k.limited += dt
	k.steady.add(s, dt)
	k.steady.fade(k.p50.now)
	if k.inflation > full {
		// A little too much: down slowly, to where it is just right.
		k.limit = target * math.Exp(-easeRate*ramp(k.inflation, full, suspect)*dt)
	}
	k.high = max(k.high, target)
	suspicious := k.inflation >= suspect || target < depth*k.high
	due := k.recheck
	if due == 0 {
		due = recheckNew
	}
	if (suspicious || k.limited >= due) && k.steady.enough(k.p50.now) && target > 1 {
		k.before, k.confirmed, k.suspected = target, false, suspicious
		k.begin(k.steady, depth*k.steady.concurrency())
	}
}

func (k *knee) begin(from window, cut float64) {
	k.fromN, k.fromX, k.fromR = from.concurrency(), from.throughput(), k.p50.now
	k.cut = max(math.Floor(cut), 1)
	k.was = k.p50.base
	k.phase, k.waited, k.restore = settling, 0, 0
}

// lapsed says that a trial shows nothing: there is too little work to be limited by it, or what runs does not end.
func (k *knee) lapsed(concurrency float64) bool {
	return concurrency < 0.5*k.cut && k.waited > 0.3 || k.waited > 10
}

// conclude compares throughput before and after the cut.
func (k *knee) conclude() {
	n, x := k.trial.concurrency(), k.trial.throughput()
	elasticity := math.Log(max(k.fromX, 1e-9)/max(x, 1e-9)) / max(math.Log(k.fromN/max(n, 1e-9)), 0.05)
	inflated := k.p50.inflation()
	// How much quicker it was on average (Little's law), because a median may jump: calls that wait for places in lockstep
	// take one turn or two.
	if r := min(k.p50.now, k.fromR*(n/max(x, 1e-9))/(k.fromN/max(k.fromX, 1e-9))); r < 0.9*k.p50.base {
		k.p50.base, k.p90 = r, quantile{}
		k.p50.sum, k.p50.n = 0, 0
	}
	switch {
	case elasticity >= verdict:
		// It was work: less ran, and less got done. So this is how long the work takes now.
		k.learn(1)
		k.restore = k.before
		if k.confirmed {
			k.restore = k.fromN
		}
		k.end(min(2*max(k.recheck, recheckFirst/2), recheckLast))
	case inflated >= suspect:
		k.confirmed = true
		k.begin(k.trial, max(deepest*n, min(depth*n, 1.1*n/inflated)))
	case k.p50.base < 0.95*k.was:
		// The trial has found a better baseline; there may be one still better.
		k.end(recheckSoon)
	default:
		// It was waiting, and no more of it than is good.
		if !k.suspected {
			k.restore = k.before
		}
		k.end(min(2*max(k.recheck, recheckFirst/2), recheckLast))
	}
}

// learn makes the present, less its inflation, the baseline. The 90th percentile may not have been read for long, so it
// is learned anew.
func (k *knee) learn(inflation float64) {
	k.p50.base = k.p50.now / max(inflation, 1)
	k.p50.sum, k.p50.n = 0, 0
	k.p90 = quantile{}
}

func (k *knee) end(recheck float64) {
	k.phase, k.waited, k.limited, k.steady = watching, 0, 0, window{}
	k.recheck, k.high = recheck, 0
}

// The law: from one sample to one decision, a pure step of a small state.

package control

import (
	"math"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Rates of change, per second of time between samples, as exponents; and the most that one step may do.
const (
	shrinkRate = 3.6 // x0.7 in 100 ms
	growRate   = 1.0
	returnRate = 2.0 // back to where a trial found it
	tightest   = 0.7 // a step leaves at least this share of the target
	loosest    = 1.25
	longest    = 1.0 // seconds that one step accounts for
	shedRate   = 0.5 // per second at full pressure
	relentRate = 0.2
)

// Controller turns samples into decisions. Its methods may be called by any number of goroutines; they take turns. It starts
// no goroutine, reads no clock and draws no random number: the same samples give the same decisions (C6).
type Controller struct {
	cfg Config

	mu    sync.Mutex // guards state; nothing foreign runs under it
	state state
}

// state is everything that a decision depends on besides the sample.
type state struct {
	seq      uint64
	last     time.Time
	target   float64
	mark     float64 // the target that recovery reaches without use: Initial, or what use has made of it
	pressure float64
	top      signal // the signal behind pressure, of the last sample that had one
	shed     float64
	knee     knee
}

// New returns a controller at its initial target. The error is an [*InvalidError].
func New(cfg Config) (*Controller, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	full := float64(cfg.Initial)
	return &Controller{cfg: cfg, state: state{target: full, mark: full}}, nil
}

// Step judges a sample. It never blocks for longer than another Step takes, and allocates the decision's Reasons and Stale.
//
// Any sample is safe: what is missing, negative or not a number counts as not read, and a sample that is not newer than
// the one before changes nothing (its decision repeats what ruled, under a new Seq).
func (c *Controller) Step(s monitor.Sample) decision.ControlDecision {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := &c.state
	dt := st.elapsed(s)
	informed := st.step(c.cfg, s, dt)
	st.seq++
	return st.decide(c.cfg, s.At, informed && dt > 0)
}

// elapsed is how many seconds this sample accounts for: since the sample before, at most longest, because of what
// happened in a long silence only the end is known. A sample from before the last one accounts for nothing, but time goes
// on from there: else one wrong clock reading would stop control for good.
func (st *state) elapsed(s monitor.Sample) float64 {
	dt := s.Gap
	if !s.At.IsZero() {
		if !st.last.IsZero() {
			dt = s.At.Sub(st.last)
		}
		st.last = s.At
	}
	return min(seconds(dt), longest)
}

// step moves the state by dt seconds, and says whether the sample knew anything about processors.
func (st *state) step(cfg Config, s monitor.Sample, dt float64) (informed bool) {
	top, informed := cfg.judge(s, st.knee.busy)
	if dt == 0 {
		return informed
	}
	if informed {
		constant := fallTime
		if top.level > st.pressure {
			constant = riseTime
		}
		st.pressure += (top.level - st.pressure) * toward(dt, constant)
		if top.level >= growBelow || st.pressure < growBelow {
			st.top = top // else what raised the pressure is gone before the pressure is, and is named until then
		}
	}
	restore := st.knee.restore // what this sample teaches takes effect with the next
	st.knee.step(s.Service, dt, st.target)
	st.move(cfg, s, dt, restore, informed)
	if informed {
		st.shed = shedding(st.shed, st.pressure, dt, cfg.MaxShed)
	}
	if ok(s.Utilization) {
		st.knee.busy += (min(finite(s.Utilization.Value), 1) - st.knee.busy) * toward(dt, 0.5)
	}
	return informed
}

// move changes the target.
func (st *state) move(cfg Config, s monitor.Sample, dt, restore float64, informed bool) {
	k, p, before := &st.knee, st.pressure, st.target
	next := before
	if p > shrinkAbove && informed {
		// Fewer than one task per processor would leave processors idle while others wait for them.
		floor := min(float64(cfg.Processors), before)
		next = max(before*math.Exp(-shrinkRate*(p-shrinkAbove)/(1-shrinkAbove)*dt), floor)
	}
	if p < growBelow && informed {
		share := (growBelow - p) / growBelow * k.growth
		goal := st.mark
		if k.fed && finite(s.Service.Concurrency) >= 0.8*before {
			goal = max((1.1+0.15*k.growth)*k.easy, before+0.2)
		}
		rate := growRate
		if before < restore {
			rate, share = returnRate, (growBelow-p)/growBelow
			goal = max(goal, restore)
		}
		grown := max(before*math.Exp(rate*share*dt), before+10*share*dt)
		next = max(before, min(grown, goal))
		if next > st.mark {
			st.mark = next
		}
	}
	if k.limit < next {
		next = max(k.limit, min(next, before*math.Exp(-shrinkRate*dt)))
	}
	// One step is bounded, however long the time that it stands for.
	next = min(max(next, tightest*before), max(loosest*before, before+1))
	st.target = cfg.within(next)
	if k.restore == restore && (st.target >= restore || p > shrinkAbove) {
		k.restore = 0
	}
}

// shedding moves the shed probability by dt seconds at pressure p.
func shedding(shed, p, dt, most float64) float64 {
	switch {
	case p > shedAbove:
		shed += shedRate * (p - shedAbove) / (1 - shedAbove) * dt
	case p < calmBelow:
		shed -= relentRate * (calmBelow - p) / calmBelow * dt
	}
	return min(max(shed, 0), most)
}

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
	seq        uint64
	last       time.Time
	target     float64
	pressure   float64
	top        signal // the signal behind pressure, of the last sample that had one
	shed       float64
	processors float64
	served     service
	lag        lag
}

// New returns a controller at its initial target. The error is an [*InvalidError].
func New(cfg Config) (*Controller, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	full := float64(cfg.Initial)
	return &Controller{cfg: cfg, state: state{target: full, processors: full, served: service{target: full}}}, nil
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
	// s.Lag = st.lag.pool(s.Lag, dt)
	top, informed := cfg.judge(s, st.served.busy)
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
	st.served.step(s.Service, dt, st.target, min(finite(s.Utilization.Value), 1))
	st.move(cfg, s, dt, informed)
	if informed {
		st.shed = shedding(st.shed, st.pressure, dt, cfg.MaxShed)
	}
	if ok(s.Utilization) {
		st.served.busy += (min(finite(s.Utilization.Value), 1) - st.served.busy) * toward(dt, 0.5)
	}
	return informed
}

// move changes the target.
func (st *state) move(cfg Config, s monitor.Sample, dt float64, informed bool) {
	p, before := st.pressure, st.processors
	next := before
	if p > shrinkAbove && informed {
		// Fewer than one task per processor would leave processors idle while others wait for them.
		from := min(before, st.served.target)
		floor := min(float64(cfg.Processors), from)
		next = max(from*math.Exp(-shrinkRate*(p-shrinkAbove)/(1-shrinkAbove)*dt), floor, tightest*from)
	}
	if p < growBelow && informed {
		share := (growBelow - p) / growBelow
		next = max(before*math.Exp(2*share*dt), before+10*share*dt)
		next = min(next, 4*st.served.target)
		next = max(next, before)
	}
	st.processors = cfg.within(next)
	st.served.target = cfg.within(st.served.target)
	st.target = min(st.processors, st.served.target)
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

// lag pools the delays of the last second, for samples that have few.
type lag struct{ p50, p90, count float64 }

func (l *lag) pool(s monitor.Lag, dt float64) monitor.Lag {
	l.count *= math.Exp(-dt / 0.5)
	n := float64(s.Count)
	if n > 0 {
		l.p50 += (seconds(s.P50) - l.p50) * n / (n + l.count)
		l.p90 += (seconds(s.P90) - l.p90) * n / (n + l.count)
		l.count = min(l.count+n, 200)
	}
	s.P50, s.P90, s.Count = seconds2(l.p50), seconds2(l.p90), uint64(l.count)
	return s
}

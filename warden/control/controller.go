// SPDX-License-Identifier: Apache-2.0

// The controller: from one sample to one decision, a pure step of a small state.

package control

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Rates of change, as exponents per second between samples, and bounds for one step.
const (
	shrinkRate = 7.0 // x0.5 in 100 ms
	growRate   = 2.0
	tightest   = 0.5  // a step of the processors' half leaves at least this share of the limit
	blind      = 0.7  // share of the limit that remains when control is silent
	longest    = 1.0  // seconds that one step accounts for
	ahead      = 4.0  // the processors' limit is at most this many times the service half's
	shedRate   = 0.5  // per second at full pressure
	mostShed   = 0.95 // so that some tasks always pass and can be measured
	relentRate = 0.2
)

// Controller turns samples into decisions. Its methods are safe for concurrent use; they run one at a time. A Controller
// starts no goroutine, reads no clock and draws no random number: the same samples give the same decisions (C6).
type Controller struct {
	initial int  // Config.Initial, before any SetBounds
	told    bool // Config.Processors was given: samples do not change it

	mu    sync.Mutex // guards all below; no foreign code runs under it
	cfg   Config
	state state
}

// state is everything besides the sample that determines a decision.
type state struct {
	seq        uint64
	last       time.Time
	pressure   float64
	top        signal  // the signal behind pressure, of the last sample that had one
	busy       float64 // smoothed utilization before the sample
	shed       float64
	processors float64 // the limit of the processors' half
	served     service // the service half
	memory     memory
	parts      map[string]*part
	wait       wait
	theft      theft
	needs      map[string]time.Duration // shared with decisions, and never changed
}

// ends returns the limit for what ends: the smaller of both halves.
func (st *state) ends() float64 { return min(st.processors, st.served.target) }

// all returns the limit without memory: what runs for long comes on top of what ends.
func (st *state) all() float64 {
	long := &st.served.long
	return long.besides(st.ends()) + long.slots
}

// target returns the limit: all has to fit into memory, beside what has no slot.
func (st *state) target(cfg Config) float64 {
	fits := max(st.memory.most()-st.served.long.parked, float64(cfg.Processors))
	return cfg.within(min(st.all(), fits))
}

// New returns a controller at its initial limit. The error is an [*decision.InvalidError].
func New(cfg Config) (*Controller, error) {
	told := cfg.Processors != 0
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	full := float64(cfg.Initial)
	return &Controller{
		initial: cfg.Initial, told: told, cfg: cfg,
		state: state{
			processors: full, served: service{target: full, pace: 1, testAfter: testFirst}, theft: theft{share: 1, under: 1},
		},
	}, nil
}

// SetBounds changes Config.Min and Config.Max for the next Step and all later ones. A limit outside comes inside with the next
// Step; Config.Initial is the nearest value inside for as long. The error is an [*decision.InvalidError], as of New, except
// that 0 is no default here; nothing has changed then. SetBounds may wait for a Step and allocates nothing.
func (c *Controller) SetBounds(low, high int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if low < 1 || low > most {
		return invalidField("Min", low, fmt.Sprintf("1 to %d", most))
	}
	if high < low || high > most {
		return invalidField("Max", high, fmt.Sprintf("Min (%d) to %d", low, most))
	}
	c.cfg.Min, c.cfg.Max = low, high
	c.cfg.Initial = min(max(c.initial, low), high)
	return nil
}

// Bounds returns Min and Max as they are now, defaults resolved. It may wait for a Step.
func (c *Controller) Bounds() (low, high int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg.Min, c.cfg.Max
}

// Step turns a sample into a decision. It blocks at most for another Step, and allocates the decision's Reasons, Stale and Parts.
//
// Any sample is safe: missing and NaN values count as not measured or 0, negative ones as 0. After a sample that is not newer
// than the one before, the decision repeats the previous one, under a new Seq and with no_information among its Reasons; only
// what is known of memory may change.
func (c *Controller) Step(s monitor.Sample) decision.ControlDecision {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := &c.state
	dt := st.elapsed(s)
	s = related(s)
	if !c.told && s.Processors > 0 {
		c.cfg.Processors = int(math.Ceil(min(s.Processors, most)))
	}
	informed := st.step(c.cfg, s, dt)
	st.seq++
	return st.decide(c.cfg, s.At, informed && dt > 0)
}

// elapsed returns the seconds that this sample accounts for: the time since the previous one, at most longest, because a
// sample after a long silence describes only the end of it. A sample older than the last accounts for nothing, but becomes
// the reference: otherwise one wrong clock reading would stop control permanently.
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

// step advances the state by dt seconds, and reports whether the sample had any information about processors.
func (st *state) step(cfg Config, s monitor.Sample, dt float64) (informed bool) {
	top, informed := cfg.dominant(s, st.busy)
	st.memory.observe(s.Memory, s.Service, float64(cfg.Processors), dt, dt > 0 && informed)
	if dt == 0 || !informed {
		return informed
	}
	used := 0.0
	if ok(s.Utilization) {
		used = min(finite(s.Utilization.Value), 1)
	}
	changed := st.theft.observe(s, used*float64(cfg.Processors), &st.served.base, dt)
	used = min(used/shareOf(s), 1) // what is needed of what we get
	calm, pools := st.pressure < growBelow && top.level < growBelow, s.Pools
	v := &st.served
	if changed {
		v.rebase()
		for _, p := range st.parts {
			p.rebase()
		}
	}
	parted := len(s.Parts) > 0
	if v.sized, v.parted = parted, parted; parted {
		v.shared = st.stepParts(s, dt, used, calm)
		pools = poolsOf(pools, "")
		s.Service.Abandoned, s.Service.AbandonedTime = 0, 0 // a part's own affair
	}
	v.vain = false
	v.step(s.Service, pools, dt, used, float64(cfg.Initial), st.ends(), calm)
	v.target = cfg.within(v.target)
	v.unread = unreadable(s.Pools)
	if v.vain { // no work waits: its parts have all become slower
		for _, p := range st.parts {
			p.accept()
		}
	}
	constant := fallTime
	if top.level > st.pressure {
		constant = riseTime
	}
	st.pressure += (top.level - st.pressure) * toward(dt, constant)
	if top.level >= growBelow || st.pressure < growBelow {
		st.top = top // otherwise keep naming the signal that raised the pressure, which falls more slowly
	}
	followed := st.follow(float64(cfg.Processors), dt)
	st.processors = cfg.within(max(followed, min(st.theft.floor(float64(cfg.Processors), &v.base), 2*st.processors)))
	st.needs = needs(s.Service.Needs)
	st.wait.observe(math.Round(st.target(cfg)), st.served.expected(), dt, st.served.phase != watching)
	st.shed = shedding(st.shed, st.pressure, dt)
	if ok(s.Utilization) {
		st.busy += (used - st.busy) * toward(dt, 0.5)
	}
	return true
}

// follow returns the processors' limit after dt seconds at the current pressure. It shrinks from the limit in force, but not
// below one task per processor, which would leave processors idle while others wait for them.
func (st *state) follow(processors, dt float64) float64 {
	before, p := st.processors, st.pressure
	switch {
	case p > shrinkAbove:
		from := st.ends()
		return max(from*math.Exp(-shrinkRate*(p-shrinkAbove)/(1-shrinkAbove)*dt), tightest*from, min(processors, from))
	case p < growBelow:
		share := (growBelow - p) / growBelow
		grown := max(before*math.Exp(growRate*share*dt), before+10*share*dt)
		return max(before, min(grown, 2*before, ahead*st.served.target))
	}
	return before
}

// shedding returns the shed probability after dt seconds at pressure p.
func shedding(shed, p, dt float64) float64 {
	switch {
	case p > shedAbove:
		shed += shedRate * (p - shedAbove) / (1 - shedAbove) * dt
	case p < calmBelow:
		shed -= relentRate * (calmBelow - p) / calmBelow * dt
	}
	return min(max(shed, 0), mostShed)
}

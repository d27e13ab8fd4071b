// SPDX-License-Identifier: Apache-2.0

// Control laws: from samples to decisions. To try another one, register it in a file of its own.

package sim

import (
	"fmt"
	"strconv"
	"time"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// defaultQueue is a warden's default of limiter.Config.MaxQueue.
const defaultQueue = 1024

// Law decides on a sample. The first sample has only a time, and its decision applies from the start.
type Law interface {
	Step(monitor.Sample) decision.ControlDecision
}

// Maker returns the control law for one server in a world, of which it may use the number of processors only, and the limiter's
// configuration; Initial and Rand are set later.
type Maker func(w *World) (Law, limiter.Config, error)

// laws are the guards that the command line can name.
var laws = map[string]Guard{}

// Ours is the warden with its defaults.
var Ours = register("ours", ofWarden(func(l Law) Law { return untold{l} }), known)

// ofWarden makes the warden's controller and limiter with their defaults; hide keeps from the controller what it must not know.
func ofWarden(hide func(Law) Law) Maker {
	return func(w *World) (Law, limiter.Config, error) {
		c, err := control.New(control.Config{Initial: max(16, w.Cores)}) // its default there; samples say the processors
		return hide(c), limiter.Config{MaxQueue: defaultQueue}, err
	}
}

// untold keeps from a law what the pool of the dependency tells.
type untold struct{ Law }

// Step decides without pools.
func (l untold) Step(s monitor.Sample) decision.ControlDecision {
	s.Pools = nil
	return l.Law.Step(s)
}

// inUse tells a law how much of the pool is in use, as database/sql and pgxpool do, but not how many wait for it.
type inUse struct{ Law }

// Step decides without the number of those who wait.
func (l inUse) Step(s monitor.Sample) decision.ControlDecision {
	for i := range s.Pools {
		s.Pools[i].Waiting = monitor.Reading{}
	}
	return l.Law.Step(s)
}

// Told is the warden whose pool says how many wait, InUse the one whose pool does not.
var (
	Told  = register("told", ofWarden(func(l Law) Law { return l }), known)
	InUse = register("inuse", ofWarden(func(l Law) Law { return inUse{l} }), known)
)

// Dry is a dry run of ours.
var Dry = Under("dry run", func(w *World) (Law, limiter.Config, error) {
	law, cfg, err := ofWarden(func(l Law) Law { return untold{l} })(w)
	cfg.Mode = decision.DryRun
	return law, cfg, err
})

// register adds a control law under a name.
func register(name string, m Maker, h hears) Guard {
	laws[name] = guard(name, m, h)
	return laws[name]
}

// Declared is Ours to which every attempt declares the deadline that its user has in mind.
var Declared = register("declared", ofWarden(func(l Law) Law { return untold{l} }), deadlines)

// Named finds a control law; a number is a constant concurrency limit.
func Named(name string) (Guard, error) {
	if target, err := strconv.Atoi(name); err == nil {
		return Static(target), nil
	}
	if g, ok := laws[name]; ok {
		return g, nil
	}
	return Guard{}, fmt.Errorf("no law %q", name)
}

// Constant is a control law with a constant decision. It needs no samples.
type Constant struct {
	Target          int
	Expected, Burst time.Duration
	Needs           map[string]time.Duration
}

// Step returns the constant decision.
func (c Constant) Step(monitor.Sample) decision.ControlDecision {
	return decision.ControlDecision{
		Seq: 1, TargetConcurrency: c.Target, Expected: c.Expected, Burst: c.Burst, Needs: c.Needs,
		Reasons: []decision.Reason{decision.NewReason("constant", "none", 0, decision.Hold)},
	}
}

// Static returns a limiter with a constant concurrency limit that knows the median execution time, of several kinds the shortest.
func Static(target int) Guard {
	return Under(strconv.Itoa(target), func(w *World) (Law, limiter.Config, error) {
		return Constant{Target: target, Expected: w.typical(), Needs: w.needs()}, limiter.Config{MaxQueue: defaultQueue}, nil
	})
}

// Pool returns a limiter with a constant concurrency limit and a queue, first come, first served, that knows neither deadlines
// nor priorities, as thread pools have it.
func Pool(name string, target, queue int) Guard {
	return Guard{name, func(s *server) (gate, error) {
		return newLimited(s, func(*World) (Law, limiter.Config, error) {
			return Constant{Target: target, Burst: time.Hour}, limiter.Config{MaxQueue: queue}, nil
		}, nothing)
	}}
}

// Forgetful is ours that does not see memory.
var Forgetful = register("forgetful", ofWarden(func(l Law) Law { return forgetful{untold{l}} }), known)

type forgetful struct{ Law }

// Step decides without memory.
func (l forgetful) Step(s monitor.Sample) decision.ControlDecision {
	s.Memory = monitor.Memory{}
	return l.Law.Step(s)
}

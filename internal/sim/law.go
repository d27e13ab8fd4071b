// SPDX-License-Identifier: Apache-2.0

// Control laws: from samples to decisions. To try another one, register it in a file of its own.

package sim

import (
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

// The warden with its defaults: Ours is told nothing by the pool of a dependency, Told how many wait for it, InUse, as by
// database/sql and pgxpool, only how many use it. Forgetful sees no memory, and Dry is a dry run of Ours.
var (
	Ours  = register("ours", ofWarden(noPools))
	Told  = register("told", ofWarden(func(*monitor.Sample) {}))
	InUse = register("inuse", ofWarden(func(s *monitor.Sample) {
		for i := range s.Pools {
			s.Pools[i].Waiting = monitor.Reading{}
		}
	}))
	Forgetful = register("forgetful", ofWarden(func(s *monitor.Sample) { s.Pools, s.Memory = nil, monitor.Memory{} }))
	Dry       = Under("dry run", func(w *World) (Law, limiter.Config, error) {
		law, cfg, err := ofWarden(noPools)(w)
		cfg.Mode = decision.DryRun
		return law, cfg, err
	})
)

func noPools(s *monitor.Sample) { s.Pools = nil }

// ofWarden makes the warden's controller and limiter with their defaults; hide keeps from the controller what it must not know.
func ofWarden(hide func(*monitor.Sample)) Maker {
	return func(w *World) (Law, limiter.Config, error) {
		c, err := control.New(control.Config{Initial: max(16, w.Cores)}) // its default there; samples say the processors
		return hiding{c, hide}, limiter.Config{MaxQueue: defaultQueue}, err
	}
}

// hiding keeps something of each sample from a law.
type hiding struct {
	Law
	hide func(*monitor.Sample)
}

// Step decides on what is left.
func (l hiding) Step(s monitor.Sample) decision.ControlDecision {
	l.hide(&s)
	return l.Law.Step(s)
}

func register(name string, m Maker) Guard {
	laws[name] = Under(name, m)
	return laws[name]
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
		}, true)
	}}
}

// Control laws: from samples to decisions. To try another one, register it in a file of its own.

package swarm

import (
	"fmt"
	"strconv"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Law decides on a sample. The first sample has only a time, and its decision applies from the start.
type Law interface {
	Step(monitor.Sample) decision.ControlDecision
}

// Maker returns the control law for one run in a world, of which it may use the number of processors only, and the limiter's
// configuration; Initial and Rand are set later.
type Maker func(w *World) (Law, limiter.Config, error)

// laws are the control laws that the command line can name.
var laws = map[string]Maker{}

var _ = register("ours", Ours)

// register adds a control law under a name.
func register(name string, m Maker) bool {
	laws[name] = m
	return true
}

// Named finds a control law; a number is a constant concurrency limit.
func Named(name string) (Maker, error) {
	if target, err := strconv.Atoi(name); err == nil {
		return Static(target), nil
	}
	if m, ok := laws[name]; ok {
		return m, nil
	}
	return nil, fmt.Errorf("no law %q", name)
}

// Ours is the warden with its defaults.
func Ours(w *World) (Law, limiter.Config, error) {
	c, err := control.New(control.Config{Processors: w.Cores})
	return c, limiter.Config{MaxQueue: warden.DefaultQueue}, err
}

// Constant is a control law with a constant decision. It needs no samples.
type Constant struct {
	Target   int
	Expected time.Duration
}

// Step returns the constant decision.
func (c Constant) Step(monitor.Sample) decision.ControlDecision {
	return decision.ControlDecision{
		Seq: 1, TargetConcurrency: c.Target, Expected: c.Expected,
		Reasons: []decision.Reason{decision.NewReason("constant", "none", 0, decision.Hold)},
	}
}

// Static returns a limiter with a constant concurrency limit that knows the median execution time.
func Static(target int) Maker {
	return func(w *World) (Law, limiter.Config, error) {
		return Constant{target, w.typical()}, limiter.Config{MaxQueue: warden.DefaultQueue}, nil
	}
}

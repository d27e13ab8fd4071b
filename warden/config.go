// What a warden is made of.

package warden

import (
	"errors"
	"fmt"
	"time"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Most programs import this package alone.
type (
	// Task is what asks to run: limiter.Task.
	Task = limiter.Task
	// Priority orders tasks, higher first: limiter.Priority.
	Priority = limiter.Priority
	// Rejection is why a task was not started: limiter.Rejection.
	Rejection = limiter.Rejection //nolint:errname // the name that the limiter gives it
	// ReentryError is why work that has a place was refused a second one: limiter.ReentryError.
	ReentryError = limiter.ReentryError
)

// The common priorities of package limiter.
const (
	Background = limiter.Background
	Normal     = limiter.Normal
	High       = limiter.High
	Critical   = limiter.Critical
)

var (
	// ErrRejected is what every refusal is: errors.Is(err, ErrRejected).
	ErrRejected = limiter.ErrRejected
	// ErrReentry is what every [*ReentryError] is.
	ErrReentry = limiter.ErrReentry
)

// Sampler measures; [monitor.Sampler] is one. Calls take turns.
type Sampler interface {
	Sample() monitor.Sample
}

// Controller judges; [control.Controller] is one. Calls take turns.
type Controller interface {
	Step(monitor.Sample) decision.ControlDecision
}

// Target executes decisions: a [limiter.Limiter], or anything else with an Apply. Calls take turns.
type Target interface {
	Apply(decision.ControlDecision)
}

// Config describes a warden. The zero value is meant for production.
type Config struct {
	// Limiter configures the limiter. A MaxQueue of 0 means DefaultQueue here: a warden can tell a long queue from a
	// short one, and those who must not wait call TryAcquire.
	Limiter limiter.Config
	// Control configures the controller, unless Controller is set. A ValidFor of 0 means four intervals here, a second at
	// least; the decision that rules before the first sample is valid for as long, whoever judges.
	Control control.Config
	// Interval is the time between samples, 10 ms to 10 s; 0: 100 ms.
	Interval time.Duration
	// History is how many readings [Warden.History] keeps, 1 to 100,000, of some 1600 bytes each; 0: 600, which is a minute
	// with the default interval.
	History int

	// Sampler measures instead of this module's own; nil: [monitor.New]. Execution times are then its own business.
	Sampler Sampler
	// Controller judges instead of this module's own; nil: [control.New]. Should it begin to count its decisions anew,
	// the warden goes on with the numbers.
	Controller Controller
	// Also is told every decision after the limiter, for instance a second limiter; nil: nobody.
	Also Target
}

// DefaultQueue is how many tasks may wait if Config does not say. It bounds memory; how long anybody waits is bounded by
// deadlines and by shedding.
const DefaultQueue = 1024

const (
	defaultInterval  = 100 * time.Millisecond
	shortestInterval = 10 * time.Millisecond
	longestInterval  = 10 * time.Second
	defaultHistory   = 600
	longestHistory   = 100_000
)

// ErrInvalid is what every [*InvalidError] is.
var ErrInvalid = errors.New("warden: invalid argument")

// InvalidError says which field or argument was wrong, what it was, and what is allowed.
type InvalidError struct {
	Field   string
	Value   any
	Allowed string
}

// Error names field, value and what is allowed.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("warden: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// New returns a warden that is ready to be used, under the initial decision; see [Warden.Run]. It starts no goroutine.
// The error is an [*InvalidError], or that of the layer whose configuration is wrong.
func New(cfg Config) (*Warden, error) {
	if cfg.Interval == 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.Interval < shortestInterval || cfg.Interval > longestInterval {
		return nil, &InvalidError{"Config.Interval", cfg.Interval, "10ms to 10s, or 0 (100ms)"}
	}
	if cfg.History == 0 {
		cfg.History = defaultHistory
	}
	if cfg.History < 0 || cfg.History > longestHistory {
		return nil, &InvalidError{"Config.History", cfg.History, "1 to 100000, or 0 (600)"}
	}
	if cfg.Controller != nil {
		cfg.Control = control.Config{} // which configures nobody
	}
	if cfg.Control.ValidFor == 0 {
		cfg.Control.ValidFor = max(time.Second, 4*cfg.Interval) // a decision must outlive some late samples
	}
	if cfg.Limiter.MaxQueue == 0 {
		cfg.Limiter.MaxQueue = DefaultQueue
	}
	if cfg.Limiter.Initial.Seq == 0 && cfg.Limiter.Initial.TargetConcurrency == 0 {
		cfg.Limiter.Initial = cfg.first()
	}
	l, err := limiter.New(cfg.Limiter)
	if err != nil {
		return nil, err
	}
	w := &Warden{limiter: l, name: cfg.Limiter.Name, interval: cfg.Interval, also: cfg.Also, sampler: cfg.Sampler, controller: cfg.Controller, epoch: time.Now(), history: ring{keep: cfg.History}}
	if w.controller == nil {
		if w.controller, err = control.New(cfg.Control); err != nil {
			return nil, err
		}
	}
	if w.sampler == nil {
		w.recorder = monitor.NewRecorder()
		if w.sampler, err = monitor.New(monitor.Config{Recorder: w.recorder}); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// first is the decision that rules until the first sample has been judged: decision.Default, at the target that the
// controller begins with. It is valid for as long as the controller's own are, so that a sampler or controller that hangs from the start
// is noticed. Without a Stale decision its target stays: nothing is known yet that could be out of date.
func (cfg Config) first() decision.ControlDecision {
	d, c := decision.Default(), cfg.Control
	d.Seq, d.TargetConcurrency = 1, max(d.TargetConcurrency, c.Min) // numbered as the controller's first, which replaces it
	if c.Max > 0 {
		d.TargetConcurrency = min(d.TargetConcurrency, c.Max)
	}
	if c.Initial > 0 {
		d.TargetConcurrency = c.Initial
	}
	d.ValidFor = max(0, c.ValidFor) // control.New refuses what is less
	return d
}

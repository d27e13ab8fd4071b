// SPDX-License-Identifier: Apache-2.0

// The configuration of a warden, and the names of package limiter that most programs need.

package warden

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/nilcheck"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Aliases of package decision, so that most programs import this package alone.
type (
	// Task describes one execution to be admitted: decision.Task.
	Task = decision.Task
	// Rejection is the error of a task that was not started: decision.Rejection.
	Rejection = decision.Rejection //nolint:errname // the name that the limiter gives it
)

var (
	// ErrRejected matches every [*Rejection] with errors.Is.
	ErrRejected = decision.ErrRejected
	// ErrReentry matches, with errors.Is, the error of a second slot for work that already holds one: a [*decision.ReentryError].
	ErrReentry = decision.ErrReentry
)

// The parts that a Config may replace.
type (
	sampler    interface{ Sample() monitor.Sample }
	controller interface {
		Step(monitor.Sample) decision.ControlDecision
	}
	target interface {
		Apply(decision.ControlDecision)
	}
)

// Config describes a warden. Each field may be zero. The methods Sample, Step, Pressure and Apply of its parts are never called
// concurrently; Bounds, SetBounds and Total, for [Warden.Adjust], may be called during one of them.
type Config struct {
	// Limiter configures the limiter. A MaxQueue of 0 means 1024 tasks here, which bounds memory, since deadlines and load
	// shedding bound the queue wait; tasks that must not wait call TryAcquire. A Name of "" means "warden" here.
	Limiter limiter.Config
	// Control configures the controller, unless Controller is set. A ValidFor of 0 means four intervals here, at least 1 s.
	// Without a Limiter.Initial, the decision in force before the first sample is valid for as long; with a Controller, for
	// that default.
	Control control.Config
	// Interval is the time between samples, 10 ms to 10 s; 0: 100 ms.
	Interval time.Duration
	// History is the number of readings that [Warden.History] keeps, 1 to 100,000, about 2600 bytes each, and 600 more for each
	// compartment of ApplyTo; 0: 600, which is a minute at the default interval.
	History int

	// Pools are resources that work inside waits for, such as the connections of a database: see package pool. When one is full,
	// the limit follows it, and the decision's reason says so. One that only a compartment of ApplyTo uses names it in its Part:
	// then that compartment's limit follows. Not with Sampler.
	Pools []monitor.Pool

	// Remote says that the work runs in other processes, as behind a gateway: this one's processors say nothing about it and do not
	// count. The limit follows execution times, Pools and memory.
	Remote bool

	// Sampler replaces this module's sampler; nil: [monitor.New]. A replacement has to measure execution times itself.
	Sampler interface{ Sample() monitor.Sample }
	// Controller replaces this module's controller; nil: [control.New]. If its decision numbers restart, the warden continues
	// its own numbering.
	Controller interface {
		Step(s monitor.Sample) decision.ControlDecision
	}
	// ApplyTo receives every decision after the limiter: usually a bulkhead.Set; nil: none. If it has a method Total() int, as
	// a Set has, that is the least that Control.Initial and Control.Max may be, and Initial is at least that by default: so a
	// target on an idle machine keeps what it has alone. New asks it once: a later growth of the target raises neither. If it
	// has a method Feed(*monitor.Recorder), as a Set has, and Sampler is nil, New calls it, so that the target's own executions
	// are measured.
	ApplyTo interface {
		Apply(d decision.ControlDecision)
	}
}

const (
	defaultInterval  = 100 * time.Millisecond
	shortestInterval = 10 * time.Millisecond
	longestInterval  = 10 * time.Second
	defaultHistory   = 600
	defaultQueue     = 1024
	longestHistory   = 100_000
)

// ErrInvalid matches every [*InvalidError] with errors.Is.
var ErrInvalid = decision.ErrInvalid

// InvalidError is that of every package below: it names a field or argument, its value and what is allowed.
type InvalidError = decision.InvalidError

// invalidField rejects a field of a Config, or an argument: the field as in Config.Interval.
func invalidField(field string, value any, allowed string) *InvalidError {
	return &InvalidError{Field: field, Value: value, Allowed: allowed}
}

// New returns a warden, ready for use under the initial decision; see [Warden.Run]. It starts no goroutine. The error is an
// [*InvalidError], or that of the layer whose configuration is invalid.
func New(cfg Config) (*Warden, error) {
	if cfg.Interval == 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.Interval < shortestInterval || cfg.Interval > longestInterval {
		return nil, invalidField("Config.Interval", cfg.Interval, "10ms to 10s, or 0 (the default, 100ms)")
	}
	if cfg.History == 0 {
		cfg.History = defaultHistory
	}
	if cfg.History < 0 || cfg.History > longestHistory {
		return nil, invalidField("Config.History", cfg.History, "1 to 100000, or 0 (the default, 600)")
	}
	for _, part := range []struct{ field, typed, allowed string }{
		{"Sampler", nilcheck.Optional(cfg.Sampler), "nil (the warden's own) or a sampler"},
		{"Controller", nilcheck.Optional(cfg.Controller), "nil (the warden's own) or a controller"},
		{"ApplyTo", nilcheck.Optional(cfg.ApplyTo), "nil (none) or a target, such as a *bulkhead.Set"},
	} {
		if part.typed != "" {
			return nil, invalidField("Config."+part.field, part.typed, part.allowed)
		}
	}
	if cfg.Sampler != nil && len(cfg.Pools) > 0 {
		return nil, invalidField(
			"Config.Pools",
			fmt.Sprintf("%d pools beside Config.Sampler", len(cfg.Pools)), "none: a sampler of your own reads the pools itself",
		)
	}
	if cfg.Controller != nil {
		cfg.Control = control.Config{} // it configures the controller that is replaced
	} else if err := fitTarget(&cfg.Control, cfg.ApplyTo); err != nil {
		return nil, err
	}
	if cfg.Control.ValidFor == 0 {
		cfg.Control.ValidFor = max(time.Second, 4*cfg.Interval) // a decision must outlive some late samples
	}
	if cfg.Limiter.MaxQueue == 0 {
		cfg.Limiter.MaxQueue = defaultQueue
	}
	if cfg.Limiter.MaxQueue < 0 { // the limiter's own text says that 0 is no queue
		return nil, invalidField(
			"Config.Limiter.MaxQueue", cfg.Limiter.MaxQueue, fmt.Sprintf("1 or more, or 0 (the default, %d)", defaultQueue),
		)
	}
	cfg.Limiter.Name = cmp.Or(cfg.Limiter.Name, "warden")
	if cfg.Limiter.Initial.Seq == 0 && cfg.Limiter.Initial.TargetConcurrency == 0 {
		cfg.Limiter.Initial = cfg.first()
	}
	l, err := limiter.New(cfg.Limiter)
	if err != nil {
		return nil, err
	}
	w := &Warden{
		limiter: l, name: cfg.Limiter.Name, interval: cfg.Interval, target: cfg.ApplyTo, remote: cfg.Remote,
		sampler: cfg.Sampler, controller: cfg.Controller, epoch: time.Now(), history: ring{keep: cfg.History},
	}
	if w.controller == nil {
		if w.controller, err = control.New(cfg.Control); err != nil {
			return nil, err
		}
	}
	in := &inForce{Bounds: Bounds{MaxQueue: cfg.Limiter.MaxQueue}}
	if c, ok := w.controller.(bounded); ok {
		in.Min, in.Max = c.Bounds()
	}
	w.bounds.Store(in)
	if w.sampler == nil {
		own, err := monitor.New(cfg.Pools...)
		if err != nil {
			return nil, err
		}
		w.sampler, w.recorder = own, own.Recorder()
		if fed, ok := cfg.ApplyTo.(interface{ Feed(*monitor.Recorder) }); ok {
			fed.Feed(w.recorder)
		}
	}
	return w, nil
}

// fitTarget lets the controller begin with the total of the target. A target reports no executions, and without them the limit
// does not grow beyond Initial.
func fitTarget(c *control.Config, to target) error {
	sized, ok := to.(interface{ Total() int })
	if !ok {
		return nil
	}
	total := sized.Total()
	allowed := fmt.Sprintf("the target's total (%d) or more, or 0 (the default)", total)
	switch {
	case c.Initial > 0 && c.Initial < total:
		return invalidField("Config.Control.Initial", c.Initial, allowed)
	case c.Max > 0 && c.Max < total:
		return invalidField("Config.Control.Max", c.Max, allowed)
	case c.Initial == 0 && total > decision.Default().TargetConcurrency:
		c.Initial = max(total, c.Min, c.Processors)
		if c.Max > 0 {
			c.Initial = min(c.Initial, c.Max)
		}
	}
	return nil
}

// first returns the decision in force until the first sample: decision.Default with the controller's initial limit. It is valid
// for as long as the controller's own, so that a sampler or controller that hangs from the start is noticed. Without a Stale
// decision its limit stays: nothing is known yet that could be out of date.
func (cfg Config) first() decision.ControlDecision {
	d, c := decision.Default(), cfg.Control
	d.Seq, d.TargetConcurrency = 1, max(d.TargetConcurrency, c.Min) // numbered as the controller's first, which replaces it
	if c.Max > 0 {
		d.TargetConcurrency = min(d.TargetConcurrency, c.Max)
	}
	if c.Initial > 0 {
		d.TargetConcurrency = c.Initial
	}
	if d.Parked = max(0, c.Max-d.TargetConcurrency); c.Max == 0 {
		d.Parked = math.MaxInt32 // until the first sample
	}
	d.ValidFor = max(0, c.ValidFor) // control.New rejects what is less
	return d
}

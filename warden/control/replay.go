// Replay: recorded samples decided again, under the same or another configuration.

package control

import (
	"sync"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Replay passes samples to a new controller and returns its decisions. The error is an [*InvalidError]. To reproduce the
// decisions of a machine with another number of processors, set cfg.Processors.
func Replay(cfg Config, samples []monitor.Sample) ([]decision.ControlDecision, error) {
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return c.steps(samples), nil
}

func (c *Controller) steps(samples []monitor.Sample) []decision.ControlDecision {
	decisions := make([]decision.ControlDecision, 0, len(samples))
	for _, s := range samples {
		decisions = append(decisions, c.Step(s))
	}
	return decisions
}

// Recorder is a controller that keeps its latest samples. Its methods are safe for concurrent use.
type Recorder struct {
	c    *Controller
	keep int

	mu       sync.Mutex // guards both; held during a step of c, to keep samples in order
	old, cur Recording
}

// Recording is a series of samples, with the controller's state before the first.
type Recording struct {
	// Samples are in the order in which they were decided.
	Samples []monitor.Sample

	cfg  Config
	from state
}

// NewRecorder returns a recorder for c that keeps at least the last keep samples, 1 or more, and at most twice as many; a
// sample takes about half a kilobyte. Do not use the controller directly afterwards. The error is an [*InvalidError].
func NewRecorder(c *Controller, keep int) (*Recorder, error) {
	switch {
	case c == nil:
		return nil, &InvalidError{"controller", "nil", "a controller"}
	case keep < 1:
		return nil, &InvalidError{"keep", keep, "1 or more"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return &Recorder{c: c, keep: keep, cur: Recording{cfg: c.cfg, from: c.state.clone()}}, nil
}

// Step is [Controller.Step], and keeps s.
func (r *Recorder) Step(s monitor.Sample) decision.ControlDecision {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.cur.Samples) == r.keep {
		r.old = r.cur
		r.c.mu.Lock()
		r.cur = Recording{cfg: r.c.cfg, from: r.c.state.clone()}
		r.c.mu.Unlock()
	}
	r.cur.Samples = append(r.cur.Samples, s)
	return r.c.Step(s)
}

// Recording returns a copy of the kept samples.
func (r *Recorder) Recording() Recording {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.cur
	if r.old.Samples != nil {
		out = r.old
	}
	out.Samples = append(append([]monitor.Sample(nil), r.old.Samples...), r.cur.Samples...)
	return out
}

// Replay decides the samples again, from the same state: the decisions are the same (C6).
func (r Recording) Replay() []decision.ControlDecision {
	return (&Controller{cfg: r.cfg, state: r.from.clone()}).steps(r.Samples)
}

// WhatIf decides the samples under another configuration, from the same state. It shows other decisions, but not how they
// would have changed the measurements. The error is an [*InvalidError].
func (r Recording) WhatIf(cfg Config) ([]decision.ControlDecision, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	from := r.from.clone()
	from.processors, from.served.target = cfg.within(from.processors), cfg.within(from.served.target)
	return (&Controller{cfg: cfg, state: from}).steps(r.Samples), nil
}

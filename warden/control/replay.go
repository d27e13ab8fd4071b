// Replay: what was measured, judged once more, by the same law or by another one.

package control

import (
	"sync"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Replay gives samples to a new controller and returns its decisions: what it would have decided. The error is
// an [*InvalidError]. To get what a controller with another number of processors decided, say so in cfg.
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

// Recorder is a controller that remembers its latest samples. Its methods may be called by any number of goroutines.
type Recorder struct {
	c    *Controller
	keep int

	mu       sync.Mutex // guards both; held while c steps, so that samples are kept in their order
	old, cur Recording
}

// Recording is a piece of a controller's past: the samples, and the state it met them in.
type Recording struct {
	// Samples in the order in which they were judged.
	Samples []monitor.Sample

	cfg  Config
	from state
}

// NewRecorder returns a recorder for c that keeps at least the last keep samples, 1 or more, and at most twice as many; one
// takes about half a kilobyte. The controller must no longer be used directly. The error is an [*InvalidError].
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

// Step is [Controller.Step] and remembers s.
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

// Recording returns what is remembered, as a copy.
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

// Replay judges the samples again, from the state in which they were judged first: the decisions are the same ones (C6).
func (r Recording) Replay() []decision.ControlDecision {
	return (&Controller{cfg: r.cfg, state: r.from.clone()}).steps(r.Samples)
}

// WhatIf judges the samples under another configuration, from the same state. It says what control would have
// decided, not what would then have been measured. The error is an [*InvalidError].
func (r Recording) WhatIf(cfg Config) ([]decision.ControlDecision, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	from := r.from.clone()
	from.processors, from.served.target = cfg.within(from.processors), cfg.within(from.served.target)
	return (&Controller{cfg: cfg, state: from}).steps(r.Samples), nil
}

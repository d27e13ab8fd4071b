// A decision is the only thing that crosses from control to the limiter: how many may run, who is shed, and why.

// Package decision defines what control tells a limiter. It measures nothing and judges nothing: a [ControlDecision] is
// plain data, made by whoever controls, executed by whoever limits.
//
// A decision carries everything that must be known while control is silent: how long it holds (ValidFor) and what rules
// afterwards (Stale). So a limiter never has to guess, and never has to ask.
package decision

import (
	"math"
	"runtime"
	"slices"
	"time"
)

// ControlDecision is one judgement of control.
//
// The zero decision lets nothing run. Numbers outside the ranges given here are mistakes of whoever made the decision;
// [ControlDecision.Validate] finds them and [ControlDecision.Sanitized] replaces them.
type ControlDecision struct {
	// Seq numbers the decisions of one source, from 1. Of two decisions the one with the smaller Seq is older.
	Seq uint64
	// At is when control judged. It is for people: nothing is computed from it.
	At time.Time
	// TargetConcurrency is how many tasks may run at once, 0 or more; 0 lets none start.
	TargetConcurrency int
	// ShedProbability, 0..1, is the share of those that would have to wait that is to be refused instead.
	ShedProbability float64
	// Reasons say why control judged so. A limiter copies them into its explanations and does nothing else with them.
	Reasons []Reason
	// ValidFor is how long after it was applied the decision holds; 0: until the next one.
	ValidFor time.Duration
	// Stale is the decision that rules when ValidFor has passed without another; nil: this one goes on, explained as
	// stale. Its target is never higher than that of the decision it belongs to; its own Seq, ValidFor and Stale mean
	// nothing.
	Stale *ControlDecision
	// Expected is the execution time that a task needs, as control judges it, 0 or more; 0: unknown.
	Expected time.Duration
	// Burst is how long a burst may keep a task waiting, 0 or more; 0: [DefaultBurst]. Where somebody has waited for longer, and for
	// longer than Expected, a limiter serves the newest first.
	Burst time.Duration
	// Yields is how often, 0..MaxYields, a task that was granted its place lets other goroutines run before it starts, so
	// that those which wait for a core in Go's scheduler reach the limiter first.
	Yields int
}

// MaxYields bounds ControlDecision.Yields: more could not surface anything and would only hold the place.
const MaxYields = 64

// DefaultBurst is the Burst of a decision that does not say.
const DefaultBurst = 25 * time.Millisecond

// Default is the decision that rules before control has judged for the first time: no shedding, and room for one
// task per processor that Go uses, sixteen at least, because nothing is known yet about what the tasks do. Its Seq is
// 0, so any decision follows it. It allocates.
func Default() ControlDecision {
	return ControlDecision{
		TargetConcurrency: max(16, runtime.GOMAXPROCS(0)),
		Reasons:           []Reason{NewReason("initial", "none", 0, Hold)},
		Yields:            4,
	}
}

// Validate returns nil, or an [*InvalidError] that names the first field outside its range, in the decision itself or
// in its Stale decision.
func (d ControlDecision) Validate() error {
	if err := d.validate(""); err != nil {
		return err
	}
	if d.Stale == nil {
		return nil
	}
	if err := d.Stale.validate("Stale."); err != nil {
		return err
	}
	if d.Stale.TargetConcurrency > d.TargetConcurrency {
		return &InvalidError{"Stale.TargetConcurrency", d.Stale.TargetConcurrency, "at most TargetConcurrency"}
	}
	return nil
}

func (d ControlDecision) validate(prefix string) error {
	switch {
	case d.TargetConcurrency < 0:
		return &InvalidError{prefix + "TargetConcurrency", d.TargetConcurrency, "0 (nothing starts) or more"}
	case !(d.ShedProbability >= 0 && d.ShedProbability <= 1):
		return &InvalidError{prefix + "ShedProbability", d.ShedProbability, "0 to 1"}
	case d.ValidFor < 0:
		return &InvalidError{prefix + "ValidFor", d.ValidFor, "0 (until the next decision) or more"}
	case d.Expected < 0:
		return &InvalidError{prefix + "Expected", d.Expected, "0 (unknown) or more"}
	case d.Burst < 0:
		return &InvalidError{prefix + "Burst", d.Burst, "0 (25ms) or more"}
	case d.Yields < 0 || d.Yields > MaxYields:
		return &InvalidError{prefix + "Yields", d.Yields, "0 to 64"}
	}
	return nil
}

// Sanitized returns a copy that shares no memory with d and that Validate accepts, each number moved to the nearest end
// of its range. A ShedProbability that is not a number becomes 0, because shedding is the last resort; a Burst of 0 is put in words. A Stale decision
// loses its own ValidFor and Stale, and its target is lowered to that of d.
func (d ControlDecision) Sanitized() ControlDecision {
	s := d.sanitized()
	if d.Stale != nil {
		stale := d.Stale.sanitized()
		stale.TargetConcurrency = min(stale.TargetConcurrency, s.TargetConcurrency)
		stale.ValidFor = 0
		s.Stale = &stale
	}
	return s
}

func (d ControlDecision) sanitized() ControlDecision {
	s := d
	s.TargetConcurrency = max(0, s.TargetConcurrency)
	if math.IsNaN(s.ShedProbability) {
		s.ShedProbability = 0
	}
	s.ShedProbability = min(max(0, s.ShedProbability), 1)
	s.Reasons = slices.Clone(s.Reasons)
	s.ValidFor = max(0, s.ValidFor)
	s.Stale = nil
	s.Expected = max(0, s.Expected)
	if s.Burst <= 0 {
		s.Burst = DefaultBurst
	}
	s.Yields = min(max(0, s.Yields), MaxYields)
	return s
}

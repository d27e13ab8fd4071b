// SPDX-License-Identifier: Apache-2.0

// The decision, the only data that passes from control to the limiter: concurrency limit, share to shed, and reasons.

// Package decision defines the output of an adaptive concurrency controller and the input of a limiter: a [ControlDecision]
// with the concurrency limit, the share of waiting work to shed, and the reasons. It is plain data.
//
// A decision also covers the time in which control is silent: how long it is valid (ValidFor) and what applies afterwards
// (Stale). A limiter therefore never has to guess or to ask.
package decision

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"time"
)

// ControlDecision is one decision of a controller.
//
// Under the zero decision nothing runs. Numbers outside the documented ranges are errors of the decision's author;
// [ControlDecision.Validate] finds them and [ControlDecision.Sanitized] clamps them.
type ControlDecision struct {
	// Seq numbers the decisions of one source, from 1. A smaller Seq is older.
	Seq uint64
	// At is when control decided, for display only: nothing is computed from it.
	At time.Time
	// TargetConcurrency is the concurrency limit: how many tasks may run at once, 0 or more; at 0 none starts.
	TargetConcurrency int
	// Parked is how many tasks may run on top of it that hold no slot, because they only wait for something to tell their clients, 0
	// or more: such as event streams.
	Parked int
	// ShedProbability, 0 to 1, is the share of the tasks without a free slot to reject instead of queueing them.
	ShedProbability float64
	// Reasons explain the decision. A limiter copies them into its explanations and does not interpret them.
	Reasons []Reason
	// ValidFor is how long after its application the decision is valid; 0: until the next one.
	ValidFor time.Duration
	// Stale is the decision that applies when ValidFor has passed without a new one; nil: this one continues, marked as
	// stale. Its concurrency limit is at most that of its owner; its own Seq, ValidFor and Stale are ignored.
	Stale *ControlDecision
	// Expected is the controller's estimate of a task's execution time, 0 or more; 0: unknown.
	Expected time.Duration
	// Burst is how long a burst may keep tasks waiting, 0 or more; 0: 25 ms. When a task has waited longer than both
	// Burst and Expected, the queue is a standing one and a limiter serves the newest tasks first.
	Burst time.Duration
	// MaxWait is how long a task without a deadline may wait at first, 0 or more; the longer that queue has not
	// been empty, the less. Critical tasks may wait as long as it takes. 0: all may.
	MaxWait time.Duration
	// Needs is, by a task's name, how long it takes at least, each 0 or more and for at most 64 names: a task that waits, and has
	// less left until its deadline, cannot be answered in time. A name that is not there is unknown, and nothing is too late for it
	// before its deadline. The map belongs to the decision and is never changed.
	Needs map[string]time.Duration
	// Parts is, by the name of a part of the program that has a limit of its own (a compartment), what is decided for it besides.
	// The map belongs to the decision and is never changed.
	Parts map[string]Part
	// Yields is how often, 0 to 64, a task with a slot yields to other goroutines before it starts, so that those
	// waiting for a core in Go's scheduler reach the limiter first.
	Yields int
}

// Part is what a decision says of one part of the program.
type Part struct {
	// TargetConcurrency is the part's concurrency limit, 1 or more. It lowers the limit that the part has without it, and never
	// raises it.
	TargetConcurrency int
	// MaxWait is ControlDecision.MaxWait for the part's work, 0 or more; 0: no bound.
	MaxWait time.Duration
	// Reasons explain it; none: nothing is known against the part.
	Reasons []Reason
}

// maxYields bounds ControlDecision.Yields: more yields would reveal no more waiting goroutines and only hold the slot.
const maxYields = 64

// maxNeeds bounds ControlDecision.Needs: as many kinds of work as a monitor tells apart.
const maxNeeds = 64

// defaultBurst is the Burst of a decision that leaves it 0.
const defaultBurst = 25 * time.Millisecond

// Default returns the decision in force before control has decided: no shedding, and a concurrency limit of one task per
// GOMAXPROCS, at least 16, because nothing is known yet about the tasks. Its Seq is 0, so every decision supersedes it. It
// allocates.
func Default() ControlDecision {
	return ControlDecision{
		TargetConcurrency: max(16, runtime.GOMAXPROCS(0)),
		Reasons:           []Reason{NewReason("initial", "none", 0, Hold)},
		Yields:            4,
	}
}

// Validate returns nil, or an [*InvalidError] for the first field out of range, in the decision or in its Stale decision.
func (d ControlDecision) Validate() error {
	if err := d.validate("decision."); err != nil {
		return err
	}
	if d.Stale == nil {
		return nil
	}
	if err := d.Stale.validate("decision.Stale."); err != nil {
		return err
	}
	if d.Stale.TargetConcurrency > d.TargetConcurrency {
		return &InvalidError{"decision.Stale.TargetConcurrency", d.Stale.TargetConcurrency,
			fmt.Sprintf("at most TargetConcurrency (%d)", d.TargetConcurrency)}
	}
	return nil
}

func (d ControlDecision) validate(prefix string) error {
	switch {
	case d.TargetConcurrency < 0:
		return &InvalidError{prefix + "TargetConcurrency", d.TargetConcurrency, "0 (nothing starts) or more"}
	case d.Parked < 0:
		return &InvalidError{prefix + "Parked", d.Parked, "0 (none) or more"}
	case !(d.ShedProbability >= 0 && d.ShedProbability <= 1):
		return &InvalidError{prefix + "ShedProbability", d.ShedProbability, "0 to 1"}
	case d.ValidFor < 0:
		return &InvalidError{prefix + "ValidFor", d.ValidFor, "0 (until the next decision) or more"}
	case d.Expected < 0:
		return &InvalidError{prefix + "Expected", d.Expected, "0 (unknown) or more"}
	case d.Burst < 0:
		return &InvalidError{prefix + "Burst", d.Burst, "0 (the default, 25ms) or more"}
	case d.MaxWait < 0:
		return &InvalidError{prefix + "MaxWait", d.MaxWait, "0 (no bound) or more"}
	case len(d.Needs) > maxNeeds:
		return &InvalidError{prefix + "Needs", fmt.Sprintf("%d names", len(d.Needs)), "at most 64 names"}
	case d.Yields < 0 || d.Yields > maxYields:
		return &InvalidError{prefix + "Yields", d.Yields, "0 to 64"}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Needs)) {
		if d.Needs[name] < 0 {
			return &InvalidError{fmt.Sprintf("%sNeeds[%.40q]", prefix, name), d.Needs[name], "0 (unknown) or more"}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Parts)) {
		switch p := d.Parts[name]; {
		case p.TargetConcurrency < 1:
			return &InvalidError{fmt.Sprintf("%sParts[%.40q].TargetConcurrency", prefix, name), p.TargetConcurrency, "1 or more"}
		case p.MaxWait < 0:
			return &InvalidError{fmt.Sprintf("%sParts[%.40q].MaxWait", prefix, name), p.MaxWait, "0 (no bound) or more"}
		}
	}
	return nil
}

// Sanitized returns a deep copy that Validate accepts, with each number clamped to its range. A ShedProbability of NaN
// becomes 0, because shedding is the last resort; a Burst of 0 becomes 25 ms. Of more than 64 names the first in
// alphabetical order stay, and a time below 0 becomes unknown. A Stale decision loses its own ValidFor
// and Stale, and its concurrency limit is lowered to that of d.
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
	s.TargetConcurrency, s.Parked = max(0, s.TargetConcurrency), max(0, s.Parked)
	if math.IsNaN(s.ShedProbability) {
		s.ShedProbability = 0
	}
	s.ShedProbability = min(max(0, s.ShedProbability), 1)
	s.Reasons = slices.Clone(s.Reasons)
	s.ValidFor = max(0, s.ValidFor)
	s.Stale = nil
	s.Expected = max(0, s.Expected)
	if s.Burst <= 0 {
		s.Burst = defaultBurst
	}
	s.MaxWait = max(0, s.MaxWait)
	s.Needs = maps.Clone(s.Needs)
	maps.DeleteFunc(s.Needs, func(_ string, need time.Duration) bool { return need <= 0 })
	if len(s.Needs) > maxNeeds {
		for _, name := range slices.Sorted(maps.Keys(s.Needs))[maxNeeds:] {
			delete(s.Needs, name)
		}
	}
	s.Parts = maps.Clone(s.Parts)
	for name, p := range s.Parts {
		s.Parts[name] = Part{max(1, p.TargetConcurrency), max(0, p.MaxWait), slices.Clone(p.Reasons)}
	}
	s.Yields = min(max(0, s.Yields), maxYields)
	return s
}

// SPDX-License-Identifier: Apache-2.0

// The judge: compares a guard in a world with every alternative.

package sim

import (
	"fmt"
	"math"
	"slices"
)

// Runner runs a function inside a synctest bubble and returns when it is done.
type Runner func(f func() error) error

// Run runs a world whose servers have this guard; with trace the result keeps users and samples.
func Run(w *World, in Runner, g Guard, trace bool) (r *Result, err error) {
	err = in(func() (err error) {
		r, err = run(w, g, trace)
		return err
	})
	if err == nil {
		err = r.check()
	}
	return r, err
}

// Trial is a world with its result under each guard.
type Trial struct {
	World *World
	// Open is without a limit; Failsafe is failsafe-go's adaptive limiter. Both are nil in a scenario.
	Open, Failsafe *Result
	// Oracle is the run with the best constant concurrency limit, Best that limit; 0: no limit was best.
	Oracle *Result
	Best   int
	// Laws are in the order of their runs. Dry is a dry run of ours, nil if that is not among them.
	Laws []*Result
	Dry  *Result
}

// Compare runs a world under every alternative to a control law.
func Compare(w *World, in Runner) (t *Trial, err error) {
	t = &Trial{World: w}
	if w.Static != nil {
		err = t.ask(in, w.Static, true)
		return t, err
	}
	if t.Open, err = Run(w, in, Open, false); err != nil {
		return nil, err
	}
	if t.Failsafe, err = Run(w, in, Failsafe, false); err != nil {
		return nil, err
	}
	fits := t.Open.Inside <= defaultQueue
	if fits {
		t.Oracle = t.Open
	}
	if !fits || t.Open.All.Good < t.Open.All.Offered {
		err = t.ask(in, w.candidates(), false)
	}
	return t, err
}

// ask looks for a better constant concurrency limit.
func (t *Trial) ask(in Runner, targets []int, trace bool) error {
	for _, target := range targets {
		r, err := Run(t.World, in, Static(target), trace)
		if err != nil {
			return err
		}
		if t.Oracle == nil || t.World.counted(r).Good > t.World.counted(t.Oracle).Good {
			t.Oracle, t.Best = r, target
		}
	}
	return nil
}

// Try also runs the world under these control laws.
func (t *Trial) Try(in Runner, trace bool, names ...string) error {
	for _, name := range names {
		g, known := laws[name]
		if !known {
			return fmt.Errorf("no law %q", name)
		}
		r, err := Run(t.World, in, g, trace)
		if err != nil {
			return err
		}
		t.Laws = append(t.Laws, r)
		if name != "ours" {
			continue
		}
		if t.Dry, err = Run(t.World, in, Dry, false); err != nil {
			return err
		}
	}
	return nil
}

// candidates are seven constant concurrency limits around the estimated best, and no limit.
func (w *World) candidates() (targets []int) {
	full, cores := w.capacity(0)*w.service(), float64(w.Cores)
	around := []float64{full, 1.25 * full, 2 * full, 4 * full, cores, 1.6 * cores, float64(w.Places)}
	if h := w.Heap; h != nil && h.Limit > 0 && w.holds() > 0 {
		fits := (h.Limit - h.Base - h.Cache) / w.holds()
		around = append(around, fits/4, fits/2, 0.7*fits, fits)
	}
	for _, x := range around {
		if k := int(math.Ceil(x)); k > 0 && !slices.Contains(targets, k) {
			targets = append(targets, k)
		}
	}
	return targets
}

// Class is the kind of load in a world.
type Class int

// Classes by peak load.
const (
	Below    Class = iota // up to 0.9 of the capacity
	Near                  // up to the capacity
	Overload              // above
	classes
)

func (c Class) String() string { return [...]string{"below 0.9", "0.9 to 1", "overload", "all"}[c] }

// Class returns the world's class.
func (w *World) Class() Class {
	switch load := w.Load(); {
	case load < 0.9:
		return Below
	case load <= 1:
		return Near
	}
	return Overload
}

// counted is the part of a run that counts; in overload it begins after the twentieth execution time.
func (w *World) counted(r *Result) *Tally {
	if w.Class() == Overload {
		return &r.Settled
	}
	return &r.Warm
}

func (w *World) settled(u *user) bool { return w.counts(u) && u.at.Seconds() >= 20*w.service() }

// Counts reports whether the world counts: the oracle answers at least 5 %, and at least 300.
func (t *Trial) Counts() bool {
	o := t.World.counted(t.Oracle)
	return o.Good >= 300 && o.Share() >= 0.05
}

// Verdict is the result of a control law in a world.
type Verdict struct {
	Goodput float64 // relative to the oracle's
	// difference to the oracle's, beyond what is allowed: 0.01, or two standard deviations if chance alone makes more
	Critical float64
	Behind   float64 // failsafe-go's goodput minus the law's, relative to the oracle's
	// Latch: the limit stayed too low without need. Harm: requests failed that an unlimited server would have answered, from the
	// fifth execution time on; Cold: before it.
	Latch, Harm, Cold bool
	// Killed: the process ran out of memory. Tight: memory lowered the limit where there is room for all.
	Killed, Tight bool
}

// Judge compares a run with the alternatives.
func (t *Trial) Judge(r *Result) Verdict {
	mine, best := t.World.counted(r), t.World.counted(t.Oracle)
	good := max(float64(best.Good), 1)
	v := Verdict{Goodput: float64(mine.Good) / good, Critical: best.CriticalShare() - mine.CriticalShare() - max(0.01,
		2*math.Hypot(best.deviation(), mine.deviation())), Latch: r.Latched(), Killed: r.Killed > 0}
	if t.Open == nil {
		return v
	}
	harmed := func(open, here *Tally) bool {
		return open.Offered > 0 && t.Open.Inside <= defaultQueue && open.Share() >= 0.995 && here.Share() < 0.99
	}
	v.Behind = float64(t.World.counted(t.Failsafe).Good-mine.Good) / good
	v.Tight = t.World.Heap != nil && t.roomy() && r.Tightened > 0
	v.Harm, v.Cold = harmed(&t.Open.Later, &r.Later), harmed(&t.Open.Early, &r.Early)
	return v
}

// The judge: compares a control law in a world with every alternative.

package swarm

import (
	"math"
	"slices"

	"github.com/stopbank/stopbank/warden"
)

// Runner runs a function inside a synctest bubble and returns when it is done.
type Runner func(f func() error) error

// Trial is a world with its result under each control.
type Trial struct {
	World *World
	// Open is without a limit; Failsafe is failsafe-go's adaptive limiter.
	Open, Failsafe *Result
	// Oracle is the run with the best constant concurrency limit, Best that limit; 0: no limit was best.
	Oracle *Result
	Best   int
	// Laws are in the order of their runs.
	Laws []*Result `json:"-"`
}

// Run runs a world under a control law; with trace it records a time line.
func Run(w *World, in Runner, m Maker, trace bool) (*Result, error) {
	return within(in, func() (*Result, error) {
		g, err := under(w, m)
		if err != nil {
			return nil, err
		}
		return run(w, g, trace), nil
	})
}

// within runs a world in a bubble and checks the consistency of its counts.
func within(in Runner, f func() (*Result, error)) (r *Result, err error) {
	err = in(func() (err error) {
		r, err = f()
		return err
	})
	if err == nil {
		err = r.lost()
	}
	return r, err
}

// Compare runs a world under every alternative to a control law.
func Compare(w *World, in Runner) (*Trial, error) {
	t := &Trial{World: w, Open: run(w, &unlimited{}, false)}
	err := t.Open.lost()
	if err != nil {
		return nil, err
	}
	t.Failsafe, err = within(in, func() (*Result, error) { return run(w, &failsafe{}, false), nil })
	if err != nil {
		return nil, err
	}
	fits := t.Open.Inside <= warden.DefaultQueue
	if fits {
		t.Oracle = t.Open
	}
	if !fits || t.Open.All.Good < t.Open.All.Offered {
		for _, target := range w.candidates() {
			r, err := Run(w, in, Static(target), false)
			if err != nil {
				return nil, err
			}
			if t.Oracle == nil || w.counted(r).Good > w.counted(t.Oracle).Good {
				t.Oracle, t.Best = r, target
			}
		}
	}
	return t, nil
}

// Try also runs the world under these control laws.
func (t *Trial) Try(in Runner, named ...string) error {
	for _, name := range named {
		m, err := Named(name)
		if err != nil {
			return err
		}
		r, err := Run(t.World, in, m, false)
		if err != nil {
			return err
		}
		t.Laws = append(t.Laws, r)
	}
	return nil
}

// candidates are seven constant concurrency limits around the estimated best, and no limit.
func (w *World) candidates() (targets []int) {
	full, cores := w.Capacity*w.Service, float64(w.Cores)
	for _, x := range []float64{full, 1.25 * full, 2 * full, 4 * full, cores, 1.6 * cores, float64(w.Places)} {
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

func (c Class) String() string { return [...]string{"below 0.9", "0.9 to 1", "overload"}[c] }

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

// Counts reports whether the world counts: the oracle answers at least 5 %, and at least 300.
func (t *Trial) Counts() bool {
	o := t.World.counted(t.Oracle)
	return o.Good >= 300 && o.Share() >= 0.05
}

// Verdict is the result of a control law in a world.
type Verdict struct {
	Goodput  float64 // relative to the oracle's
	Critical float64 // difference to the oracle's
	Behind   float64 // failsafe-go's goodput minus the law's, relative to the oracle's
	// Latch: the limit stayed too low without need. Harm: requests failed that an unlimited server would have answered, from the fifth
	// execution time on; Cold: before it.
	Latch, Harm, Cold bool
}

// Judge compares a run with the alternatives.
func (t *Trial) Judge(r *Result) Verdict {
	w := t.World
	mine, best := w.counted(r), w.counted(t.Oracle)
	good := max(float64(best.Good), 1)
	harmed := func(open, here *Tally) bool {
		return open.Offered > 0 && t.Open.Inside <= warden.DefaultQueue && open.Share() >= 0.995 && here.Share() < 0.99
	}
	return Verdict{
		Goodput:  float64(mine.Good) / good,
		Critical: best.CriticalShare() - mine.CriticalShare(),
		Behind:   float64(w.counted(t.Failsafe).Good-mine.Good) / good,
		Latch:    r.Latched(),
		Harm:     harmed(&t.Open.Later, &r.Later),
		Cold:     harmed(&t.Open.Early, &r.Early),
	}
}

// SPDX-License-Identifier: Apache-2.0

// The table of random worlds: a control law's results against the targets; and each world in a line.

package sim

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// row is a line of the table: a fraction of the worlds of a class, and its target.
type row struct {
	name  string
	class Class // classes: all
	// good reports whether a world is as it should be.
	good func(Verdict) bool
	// target is the intended fraction of good worlds, held the fraction that the test requires.
	target, held float64
}

// rows are the targets in worlds of one kind of work, mixedRows in worlds of several.
var rows = []row{
	{"goodput ≥ 0.95", Below, func(v Verdict) bool { return v.Goodput >= 0.95 }, 0.99, 0.97},
	{"goodput ≥ 0.8", Below, func(v Verdict) bool { return v.Goodput >= 0.8 }, 1, 0.98},
	{"no latch", Below, func(v Verdict) bool { return !v.Latch }, 1, 0.98},
	{"no harm", Below, func(v Verdict) bool { return !v.Harm }, 1, 0.98},
	{"no cold harm", Below, func(v Verdict) bool { return !v.Cold }, 0.98, 0.97},
	{"goodput ≥ 0.95", Overload, func(v Verdict) bool { return v.Goodput >= 0.95 }, 0.85, 0.5},
	{"goodput ≥ 0.8", Overload, func(v Verdict) bool { return v.Goodput >= 0.8 }, 0.97, 0.8},
	{"critical as it should be", Overload, func(v Verdict) bool { return v.Critical <= 0 }, 0.95, 0.65},
	{"failsafe-go gets no more done by over 0.02", classes, func(v Verdict) bool { return v.Behind <= 0.02 }, 0.99, 0.87},
	{"no latch", classes, func(v Verdict) bool { return !v.Latch }, 1, 0.97},
	{"no harm", classes, func(v Verdict) bool { return !v.Harm }, 1, 0.965},
}

var mixedRows = []row{
	{"goodput ≥ 0.95", Below, func(v Verdict) bool { return v.Goodput >= 0.95 }, 0.99, 0.72},
	{"goodput ≥ 0.8", Below, func(v Verdict) bool { return v.Goodput >= 0.8 }, 1, 0.88},
	{"no harm", Below, func(v Verdict) bool { return !v.Harm }, 1, 0.94},
	{"goodput ≥ 0.95", Overload, func(v Verdict) bool { return v.Goodput >= 0.95 }, 0.6, 0.27},
	{"goodput ≥ 0.8", Overload, func(v Verdict) bool { return v.Goodput >= 0.8 }, 0.9, 0.48},
	{"critical as it should be", Overload, func(v Verdict) bool { return v.Critical <= 0 }, 0.9, 0.53},
	{"no latch", classes, func(v Verdict) bool { return !v.Latch }, 1, 0.94},
}

// heavyRows are the targets in worlds whose tasks hold memory.
var heavyRows = []row{
	{"not killed", classes, func(v Verdict) bool { return !v.Killed }, 1, 0.96},
	{"goodput ≥ 0.8", classes, func(v Verdict) bool { return v.Goodput >= 0.8 }, 0.9, 0.83},
	{"memory lowers no limit where there is room for all", classes, func(v Verdict) bool { return !v.Tight }, 1, 1},
}

// share returns the fraction of good worlds of its class under this law, and the number of worlds of the class.
func (r *row) share(counted []*Trial, law int) (share float64, n int) {
	good := 0
	for _, t := range counted {
		if r.class == classes || r.class == t.World.Class() {
			n++
			good += one(r.good(t.Judge(t.Laws[law])))
		}
	}
	return float64(good) / max(float64(n), 1), n
}

// Short returns the rows below held under this law by more than so many standard errors: fresh worlds may be worse ones by chance.
func Short(rows []row, trials []*Trial, law int, chance float64) (short []string) {
	counted := counting(trials)
	for _, r := range rows {
		if share, n := r.share(counted, law); n > 0 && share < r.held-chance*math.Sqrt(r.held*(1-r.held)/float64(n)) {
			short = append(short, fmt.Sprintf("%s, %s: %.3f of %d worlds, held are %.2f", r.class, r.name, share, n, r.held))
		}
	}
	return short
}

// split is a part of the worlds in which laws are compared.
type split struct {
	name string
	of   func(t *Trial) bool
}

var splits = []split{
	{"below 0.9", func(t *Trial) bool { return t.World.Class() == Below }},
	{"0.9 to 1", func(t *Trial) bool { return t.World.Class() == Near }},
	{"overload", over(func(*Trial) bool { return true })},
	{"overload, no limit best", over(func(t *Trial) bool { return t.Best == 0 })},
	{"overload, of the dependency", over(func(t *Trial) bool { return t.Best > 0 && t.World.dependent() })},
	{"overload, of processors", over(func(t *Trial) bool { return t.Best > 0 && !t.World.dependent() })},
}

func over(f func(*Trial) bool) func(*Trial) bool {
	return func(t *Trial) bool { return t.World.Class() == Overload && f(t) }
}

// Print writes the shares of worlds that are as they should be under the laws with these names, for a page.
func Print(out io.Writer, rows []row, trials []*Trial, names []string) {
	counted := counting(trials)
	fmt.Fprintf(out, "%d worlds, of which %d count: the share as it should be (how many are not).\n\n", len(trials), len(counted))
	fmt.Fprintf(out, "| worlds | | target |%s\n|---|---|---|%s\n",
		" "+strings.Join(names, " | ")+" |", strings.Repeat("---|", len(names)))
	for _, row := range rows {
		line, n := "", 0
		for i := range names {
			var share float64
			share, n = row.share(counted, i)
			mark := ""
			if share < row.target {
				mark = fmt.Sprintf(" (%.0f)", (1-share)*float64(n))
			}
			line += fmt.Sprintf(" %.3f%s |", share, mark)
		}
		fmt.Fprintf(out, "| %s (%d) | %s | %.2f |%s\n", row.class, n, row.name, row.target, line)
	}
	if i := slices.Index(names, "ours"); i >= 0 {
		printDry(out, counted, i)
	}
}

// Details writes what a page has no room for: the laws against the first of them, and each world, the worst first.
func Details(out io.Writer, trials []*Trial, names []string) {
	counted := counting(trials)
	printPairs(out, counted, names)
	for i, name := range names {
		fmt.Fprintf(out, "\n%s:\n", name)
		slices.SortStableFunc(counted, func(a, b *Trial) int {
			return cmp.Compare(a.Judge(a.Laws[i]).Goodput, b.Judge(b.Laws[i]).Goodput)
		})
		for _, t := range counted {
			fmt.Fprintln(out, "  "+t.Line(t.Laws[i]))
		}
	}
}

func counting(trials []*Trial) []*Trial {
	return slices.DeleteFunc(slices.Clone(trials), func(t *Trial) bool { return !t.Counts() })
}

// Line describes a world and its result in one line.
func (t *Trial) Line(r *Result) string {
	v, w := t.Judge(r), t.World
	var what []string
	for _, f := range []struct {
		is   bool
		text string
	}{
		{v.Latch, fmt.Sprintf("LATCH %.3gs until %.3gs", r.Latch, r.LatchAt)}, {v.Harm, "HARM"}, {v.Cold, "COLD HARM"},
		{v.Killed, fmt.Sprint("KILLED at ", r.Killed)}, {v.Tight, "TIGHT"},
	} {
		if f.is {
			what = append(what, f.text)
		}
	}
	best := "no limit"
	if t.Best > 0 {
		best = fmt.Sprint("target ", t.Best)
	}
	mine, oracle := w.counted(r), w.counted(t.Oracle)
	return fmt.Sprintf("seed %d goodput %.3f (failsafe-go %+.3f): %d of %d, oracle %d (%s), critical %.2f/%.2f, %d started, target %d to %d (mean %.0f) %s | %v | %s",
		w.Seed, v.Goodput, v.Behind, mine.Good, mine.Offered, oracle.Good, best, mine.CriticalShare(), oracle.CriticalShare(),
		r.Started,
		r.Least, r.Most, r.Mean, strings.Join(what, ", "), w, r.Why)
}

// Timeline writes the run tick by tick, in at most this many lines.
func (r *Result) Timeline(out io.Writer, lines int) {
	fmt.Fprintf(out, "%10s %7s %7s %7s %6s %6s | %8s %5s %9s %9s %5s %9s | %9s %5s | %s\n", "seconds", "target", "running",
		"waiting", "ready", "calls",
		"X/s", "N", "p50", "p90", "util", "lag p90", "expected", "shed", "decision")
	every := max(1, (len(r.points)+lines-1)/lines)
	for i, p := range r.points {
		if i%every != 0 {
			continue
		}
		s := p.sample
		fmt.Fprintf(out, "%10.1f %7d %7d %7d %6d %6d | %8.1f %5.0f %9.3g %9.3g %5.2f %9.3g | %9.3g %5.2f | %s\n", p.at.Seconds(),
			p.target, p.running, p.waiting, p.ready, p.calls,
			s.Service.Throughput, s.Service.Concurrency, s.Service.P50.Seconds(), s.Service.P90.Seconds(), s.Utilization.Value,
			s.Lag.P90.Seconds(),
			p.rules.Expected.Seconds(), p.rules.ShedProbability, reasons(p.rules))
	}
}

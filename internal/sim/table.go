// SPDX-License-Identifier: Apache-2.0

// The table of random worlds: a control law's results against the targets, and its worst worlds.

package sim

import (
	"cmp"
	"fmt"
	"io"
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
	{"goodput ≥ 0.95 of the oracle's", Below, func(v Verdict) bool { return v.Goodput >= 0.95 }, 0.99, 0.97},
	{"goodput ≥ 0.8", Below, func(v Verdict) bool { return v.Goodput >= 0.8 }, 1, 0.98},
	{"no latch", Below, func(v Verdict) bool { return !v.Latch }, 1, 0.98},
	{"no harm from the fifth execution time on", Below, func(v Verdict) bool { return !v.Harm }, 1, 0.98},
	{"no harm before it", Below, func(v Verdict) bool { return !v.Cold }, 0.98, 0.97},
	{"goodput ≥ 0.95 of the oracle's, from the twentieth execution time on", Overload,
		func(v Verdict) bool { return v.Goodput >= 0.95 }, 0.85, 0.5},
	{"goodput ≥ 0.8", Overload, func(v Verdict) bool { return v.Goodput >= 0.8 }, 0.97, 0.8},
	{"critical below the oracle's by no more than 0.01 or chance", Overload, func(v Verdict) bool { return v.Critical <= 0 }, 0.95,
		0.65},
	{"failsafe-go gets no more done by over 0.02", classes, func(v Verdict) bool { return v.Behind <= 0.02 }, 0.99, 0.87},
	{"no latch", classes, func(v Verdict) bool { return !v.Latch }, 1, 0.97},
	{"no harm from the fifth execution time on", classes, func(v Verdict) bool { return !v.Harm }, 1, 0.965},
}

var mixedRows = []row{
	{"goodput ≥ 0.95 of the oracle's", Below, func(v Verdict) bool { return v.Goodput >= 0.95 }, 0.99, 0.72},
	{"goodput ≥ 0.8", Below, func(v Verdict) bool { return v.Goodput >= 0.8 }, 1, 0.88},
	{"no harm from the fifth execution time on", Below, func(v Verdict) bool { return !v.Harm }, 1, 0.94},
	{"goodput ≥ 0.95 of the oracle's, from the twentieth execution time on", Overload,
		func(v Verdict) bool { return v.Goodput >= 0.95 }, 0.6, 0.27},
	{"goodput ≥ 0.8", Overload, func(v Verdict) bool { return v.Goodput >= 0.8 }, 0.9, 0.48},
	{"critical below the oracle's by no more than 0.01 or chance", Overload, func(v Verdict) bool { return v.Critical <= 0 }, 0.9,
		0.53},
	{"no latch", classes, func(v Verdict) bool { return !v.Latch }, 1, 0.94},
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

// Short returns the rows below held under this law.
func Short(rows []row, trials []*Trial, law int) (short []string) {
	counted := slices.DeleteFunc(slices.Clone(trials), func(t *Trial) bool { return !t.Counts() })
	for _, r := range rows {
		if share, n := r.share(counted, law); share < r.held {
			short = append(short, fmt.Sprintf("%s, %s: %.3f of %d worlds, held are %.2f", r.class, r.name, share, n, r.held))
		}
	}
	return short
}

// split is a part of the worlds that is reported separately.
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
	{"overload, told", over(some(func(k Kind) bool { return k.Knows == "told" }))},
	{"overload, cancel", over(some(func(k Kind) bool { return k.Knows == "cancel" }))},
	{"overload, hidden", over(some(func(k Kind) bool { return k.Knows == "hidden" }))},
	{"overload, asks again", over(func(t *Trial) bool { return t.World.Retry.Attempts > 1 })},
	{"under 0.1s", func(t *Trial) bool { return t.World.service() < 0.1 }},
	{"0.1s to 1s", func(t *Trial) bool { return t.World.service() >= 0.1 && t.World.service() < 1 }},
	{"1s to 5s", func(t *Trial) bool { return t.World.service() >= 1 && t.World.service() < 5 }},
	{"over 5s", func(t *Trial) bool { return t.World.service() >= 5 }},
	{"with holders", func(t *Trial) bool { return t.World.Holders > 0 }},
	{"calls become slower", during(func(s Spell) bool { return s.Slow > 0 })},
	{"processors stolen", during(func(s Spell) bool { return s.Stolen > 0 })},
	{"work outlives its slot", some(func(k Kind) bool { return k.Outlives })},
	{"work beside the guard", some(func(k Kind) bool { return k.Outside })},
	{"two pools", func(t *Trial) bool { return t.World.Places > 0 && len(t.World.More) > 0 }},
	{"a pool larger than its database", func(t *Trial) bool { return t.World.Behind > 0 }},
	{"jobs", some(func(k Kind) bool { return k.Patience > 1e6 })},
	{"1:40", some(func(k Kind) bool { return k.Spread == "1:40" })},
}

// some reports whether a world has such a kind.
func some(f func(Kind) bool) func(*Trial) bool {
	return func(t *Trial) bool { return slices.ContainsFunc(t.World.Kinds, f) }
}

// during reports whether a world has such a spell.
func during(f func(Spell) bool) func(*Trial) bool {
	return func(t *Trial) bool { return slices.ContainsFunc(t.World.Spells, f) }
}

func over(f func(*Trial) bool) func(*Trial) bool {
	return func(t *Trial) bool { return t.World.Class() == Overload && f(t) }
}

// Print writes the results of the laws with these names.
func Print(out io.Writer, rows []row, trials []*Trial, names []string) {
	var counted []*Trial
	var tiny []string
	for _, t := range trials {
		if t.Counts() {
			counted = append(counted, t)
		} else {
			tiny = append(tiny, fmt.Sprint(t.World.Seed))
		}
	}
	fmt.Fprintf(out, "%d worlds, of which %d count\n\n| worlds | | target |%s\n|---|---|---|%s\n", len(trials), len(counted),
		" "+strings.Join(names, " | ")+" |", strings.Repeat("---|", len(names)))
	for _, row := range rows {
		line, n := "", 0
		for i := range names {
			var share float64
			share, n = row.share(counted, i)
			mark := ""
			if share < row.target {
				mark = fmt.Sprintf(" (%.0f miss)", (1-share)*float64(n))
			}
			line += fmt.Sprintf(" %.3f%s |", share, mark)
		}
		fmt.Fprintf(out, "| %s (%d) | %s | %.2f |%s\n", row.class, n, row.name, row.target, line)
	}
	fmt.Fprintf(out, "\n≥ 0.95 / ≥ 0.8 / mean goodput, latches, harm / cold harm, critical as it should be:\n\n| split | worlds | %s | failsafe-go |\n|---|---|---|%s\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	for _, s := range splits {
		var of []*Trial
		for _, t := range counted {
			if s.of(t) {
				of = append(of, t)
			}
		}
		if len(of) == 0 {
			continue
		}
		fmt.Fprintf(out, "| %s | %d |", s.name, len(of))
		for i := range names {
			fmt.Fprintf(out, " %s |", summary(of, func(t *Trial) *Result { return t.Laws[i] }))
		}
		fmt.Fprintf(out, " %s |\n", summary(of, func(t *Trial) *Result { return t.Failsafe }))
	}
	printNoes(out, counted, names)
	printDry(out, counted, names)
	printPairs(out, counted, names)
	for i, name := range names {
		fmt.Fprintf(out, "\nLatches of %s:%s; harm:%s; cold harm:%s\n", name,
			seeds(counted, i, func(v Verdict) bool { return v.Latch }),
			seeds(counted, i, func(v Verdict) bool { return v.Harm }), seeds(counted, i, func(v Verdict) bool { return v.Cold }))
		fmt.Fprintf(out, "\nThe worst worlds of %s:\n", name)
		for _, t := range worst(counted, i, 10) {
			fmt.Fprintln(out, "  "+t.Line(t.Laws[i]))
		}
	}
	fmt.Fprintf(out, "\nToo little can be answered in these worlds for them to count: %s\n", strings.Join(tiny, " "))
}

// seeds lists the worlds of which something is true under this law, those below 0.9 of the capacity with a mark.
func seeds(of []*Trial, law int, is func(Verdict) bool) (s string) {
	for _, t := range of {
		if is(t.Judge(t.Laws[law])) {
			s += fmt.Sprintf(" %d", t.World.Seed)
			if t.World.Class() == Below {
				s += "*"
			}
		}
	}
	return s
}

func summary(of []*Trial, pick func(*Trial) *Result) string {
	var fine, fair, latch, harm, cold, critical int
	var mean float64
	for _, t := range of {
		v := t.Judge(pick(t))
		fine += one(v.Goodput >= 0.95)
		fair += one(v.Goodput >= 0.8)
		latch += one(v.Latch)
		harm += one(v.Harm)
		cold += one(v.Cold)
		critical += one(v.Critical <= 0)
		mean += v.Goodput
	}
	n := max(float64(len(of)), 1)
	return fmt.Sprintf("%.2f / %.2f / %.3f, %d, %d / %d, %.2f", float64(fine)/n, float64(fair)/n, mean/n, latch, harm, cold,
		float64(critical)/n)
}

func worst(trials []*Trial, law, n int) []*Trial {
	of := slices.Clone(trials)
	slices.SortStableFunc(of, func(a, b *Trial) int {
		return cmp.Compare(a.Judge(a.Laws[law]).Goodput,
			b.Judge(b.Laws[law]).Goodput)
	})
	return of[:min(n, len(of))]
}

// Line describes a world and its result in one line.
func (t *Trial) Line(r *Result) string {
	v, w := t.Judge(r), t.World
	var what []string
	if v.Latch {
		what = append(what, fmt.Sprintf("LATCH %.3gs until %.3gs", r.Latch, r.LatchAt))
	}
	if v.Harm {
		what = append(what, "HARM")
	}
	if v.Cold {
		what = append(what, "COLD HARM")
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

// Splice replaces the text between two marks of a page.
func Splice(page, content string) (string, error) {
	const begin, end = "<!-- table -->\n", "<!-- end of table -->\n"
	i, j := strings.Index(page, begin), strings.Index(page, end)
	if i < 0 || j < i {
		return "", fmt.Errorf("the page has no %q … %q", begin, end)
	}
	return page[:i+len(begin)] + content + page[j:], nil
}

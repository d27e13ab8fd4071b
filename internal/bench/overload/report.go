//go:build linux

// The report: Markdown, plots and JSON, targets met and missed alike.

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// report is a run, or several merged.
type report struct {
	Go       string   `json:"go"`
	Commands []string `json:"commands"`
	Peers    []string `json:"peers"`
	Cells    []Cell   `json:"cells"`
}

// merge adds the cells of the report in the folder that this one does not have.
func (r *report) merge(folder string) error {
	b, err := os.ReadFile(filepath.Join(folder, "overload.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var old report
	if err := errors.Join(err, json.Unmarshal(b, &old)); err != nil {
		return err
	}
	for _, c := range old.Cells {
		if r.find(c.Workload, c.Load, c.Variant) == nil {
			r.Cells = append(r.Cells, c)
		}
	}
	r.Commands = slices.Compact(append(old.Commands, r.Commands...))
	return nil
}

func (r *report) find(workload, load, variant string) *Cell {
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Workload == workload && c.Load == load && c.Variant == variant {
			return c
		}
	}
	return nil
}

// write puts everything into the folder.
func (r *report) write(folder string) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	files := map[string]string{"overload.json": string(b) + "\n", "overload.md": r.document()}
	for _, w := range workloads() {
		if r.has(w.name) {
			files["overload-"+w.name+".svg"] = r.plot(w)
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (r *report) has(workload string) bool {
	return slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.Workload == workload })
}

// versions are the peers that this binary was built with.
func versions() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var all []string
	for _, m := range info.Deps {
		switch m.Path {
		case "github.com/failsafe-go/failsafe-go", "github.com/zeromicro/go-zero", "github.com/go-kratos/aegis", "golang.org/x/sync":
			all = append(all, m.Path+" "+m.Version)
		}
	}
	return all
}

// loadNames are the loads that occur, in order.
func (r *report) loadNames(workload string) []string {
	order := []string{"0.7x", "1x", "1.5x", "2x", "4x", "8x"}
	var all []string
	for _, c := range r.Cells {
		if c.Workload == workload && c.Load != "step" && !slices.Contains(all, c.Load) {
			all = append(all, c.Load)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	return all
}

func (r *report) document() string {
	var b strings.Builder
	b.WriteString("# Overload over HTTP\n\n")
	b.WriteString("Written by `make overload` (`internal/bench/overload`; `-quick` takes less than three minutes, flags pick single cells). Real HTTP over\n")
	b.WriteString("loopback: a server process on one core, `GOMAXPROCS=1`, with one way of protection in front of one kind of work; and a generator on another\n")
	b.WriteString("core, an open loop of requests at random times (Poisson, the same for every variant), which does not slow down when answers are late.\n\n")
	b.WriteString("- *Capacity* is measured first: answers per second of a server that is never short of requests and never crowded.\n")
	b.WriteString("- Time is counted from the instant at which a request should have been sent. An answer after 250 ms is none: the client has hung up.\n")
	b.WriteString("- *Goodput* is answers in time per answer that was possible: of the offered, at most the capacity, less what other processes and the host took of the core.\n")
	b.WriteString("- *Ceiling* is the goodput that is left if everything beyond it is refused at the cost of a refusal in `net/http`, measured in the same run.\n")
	b.WriteString("- One request in five is critical. *Critical* is the share of those answered in time; at 8× they alone are 1.6 times the capacity.\n")
	b.WriteString("- *Reject* is how long half of the refusals took at most, *accept* how long half of the requests took to reach the first line of the handler.\n")
	b.WriteString("- *Wasted* is the share of executions that ended when nobody waited for them any more.\n")
	b.WriteString("- A cell with a question mark was disturbed twice in a row: the generator was late by more than 5 ms, or others took more than a tenth of the server's core and what was left was not enough.\n\n")
	fmt.Fprintf(&b, "%s, %s. Commands, in the order in which they added cells:\n\n", r.Go, strings.Join(r.Peers, ", "))
	for _, c := range r.Commands {
		b.WriteString("    " + c + "\n")
	}
	b.WriteString("\n| variant | what it is |\n|---|---|\n")
	for _, v := range variants() {
		fmt.Fprintf(&b, "| %s | %s |\n", v.name, v.about)
	}
	b.WriteString("\n## Targets\n\nOf `warden`, which is told nothing about the work. Missed cells are listed with what was measured.\n\n")
	b.WriteString(r.targets())
	b.WriteString(misses)
	b.WriteString("\n## Beside the best peer\n\nThe peer with the most goodput in that cell; of those that are equal within 0.01, the one with the most critical success.\n\n")
	b.WriteString(r.beside())
	for _, w := range workloads() {
		if r.has(w.name) {
			fmt.Fprintf(&b, "\n## %s: %s\n\n%s", w.name, w.about, r.tables(w))
		}
	}
	return b.String()
}

// tables are all cells of a workload.
func (r *report) tables(w workload) string {
	var b strings.Builder
	fmt.Fprintf(&b, "![goodput and critical success over the load, and goodput over a step](overload-%s.svg)\n\n", w.name)
	b.WriteString("| load (ceiling) | variant | goodput | critical | success | p50 / p99 | p99 critical | reject (accept) | wasted |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, load := range r.loadNames(w.name) {
		for _, v := range variants() {
			if c := r.find(w.name, load, v.name); c != nil {
				fmt.Fprintf(&b, "| %s (%.2f) | %s%s | %.3f | %.3f | %.4f | %.0f / %.0f ms | %.0f ms | %.1f (%.1f) ms | %.3f |\n",
					load, c.Ceiling, v.name, c.mark(), c.Goodput, c.Critical, c.Success, c.P50, c.P99, c.P99Crit, c.Reject, c.Accept, c.Wasted)
			}
		}
	}
	steps := false
	for _, v := range variants() {
		c := r.find(w.name, "step", v.name)
		if c == nil {
			continue
		}
		if !steps {
			steps = true
			b.WriteString("\nA step from 0.6 to 5 and back:\n\n| variant | goodput, first half second | least half second | first half second after | success of what came in it | critical |\n|---|---|---|---|---|---|\n")
		}
		fmt.Fprintf(&b, "| %s%s | %.2f | %.2f | %.2f | %.2f | %.3f |\n", v.name, c.mark(), c.First, c.Least, c.Halves[2*len(c.Halves)/3], c.Recovery, c.Critical)
	}
	return b.String()
}

func (c *Cell) mark() string {
	if c.Doubt != "" {
		return " ?"
	}
	return ""
}

// beside compares ours with the best peer of each cell.
func (r *report) beside() string {
	var b strings.Builder
	b.WriteString("| workload | load | goodput | critical | p50 / p99 | best peer | goodput | critical | p50 / p99 |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, w := range workloads() {
		for _, load := range r.loadNames(w.name) {
			our := r.find(w.name, load, "warden")
			var best *Cell
			for _, v := range variants()[1:] {
				c := r.find(w.name, load, v.name)
				if c != nil && (best == nil || c.Goodput > best.Goodput+0.01 || c.Goodput > best.Goodput-0.01 && c.Critical > best.Critical) {
					best = c
				}
			}
			if our == nil || best == nil {
				continue
			}
			fmt.Fprintf(&b, "| %s | %s%s | %.3f | %.3f | %.0f / %.0f ms | %s%s | %.3f | %.3f | %.0f / %.0f ms |\n", w.name, load, our.mark(),
				our.Goodput, our.Critical, our.P50, our.P99, best.Variant, best.mark(), best.Goodput, best.Critical, best.P50, best.P99)
		}
	}
	return b.String()
}

// A target is a bound on something of ours.
type target struct {
	text  string
	loads []string
	least float64
	most  float64
	value func(c *Cell) float64
}

func targets() []target {
	under, over, most := []string{"0.7x"}, []string{"1.5x", "2x", "4x", "8x"}, []string{"2x", "4x"}
	step := []string{"step"}
	return []target{
		{text: "success at 0.7× ≥ 0.999", loads: under, least: 0.999, value: func(c *Cell) float64 { return c.Success }},
		{text: "goodput at 1.5×…8× ≥ 0.97", loads: over, least: 0.97, value: func(c *Cell) float64 { return c.Goodput }},
		{text: "critical success up to 4× ≥ 0.99", loads: []string{"0.7x", "1x", "1.5x", "2x", "4x"}, least: 0.99, value: func(c *Cell) float64 { return c.Critical }},
		{text: "p50 at 2×…4× ≤ 60 ms", loads: most, most: 60, value: func(c *Cell) float64 { return c.P50 }},
		{text: "p99 at 2×…4× ≤ 150 ms", loads: most, most: 150, value: func(c *Cell) float64 { return c.P99 }},
		{text: "p99 of critical at 4× ≤ 60 ms", loads: []string{"4x"}, most: 60, value: func(c *Cell) float64 { return c.P99Crit }},
		{text: "half of the refusals in the accept wait + 1 ms", loads: over, most: 1, value: func(c *Cell) float64 { return c.Reject - c.Accept }},
		{text: "goodput in the first half second of a step ≥ 0.8", loads: step, least: 0.8, value: func(c *Cell) float64 { return c.First }},
		{text: "goodput in the first half second after it ≥ 0.95", loads: step, least: 0.95, value: func(c *Cell) float64 { return c.Halves[2*len(c.Halves)/3] }},
	}
}

func (r *report) targets() string {
	var b strings.Builder
	b.WriteString("| target | cells | met | missed |\n|---|---|---|---|\n")
	for _, t := range targets() {
		met, missed := 0, []string{}
		for i := range r.Cells {
			c := &r.Cells[i]
			if c.Variant != "warden" || !slices.Contains(t.loads, c.Load) {
				continue
			}
			if v := t.value(c); t.least > 0 && v >= t.least || t.most > 0 && v <= t.most {
				met++
			} else {
				digits := 3
				if t.most > 0 {
					digits = 1
				}
				under := ""
				if c.Ceiling < t.least {
					under = fmt.Sprintf(" (ceiling %.2f)", c.Ceiling)
				}
				missed = append(missed, fmt.Sprintf("%s %s: %.*f%s%s", c.Workload, c.Load, digits, v, c.mark(), under))
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %s |\n", t.text, met+len(missed), met, strings.Join(missed, "; "))
	}
	return b.String()
}

// halfSeconds are the times of the points of a step, in seconds.
func halfSeconds(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = (time.Duration(i)*500*time.Millisecond + 250*time.Millisecond).Seconds()
	}
	return x
}

// misses is what is known of the targets that are missed again and again.
const misses = `
What is known of the misses:

- **Goodput at 4× and 8×.** Refusing is work: see the ceilings, which are what net/http alone leaves. It shows where a request is 1 ms: at 8× there are seven thousand refusals a second. In profiles of cpu1y all but the work itself took 56 to 59 us
  of the processor for each of them, 53 with failsafe-go and 48 with the bare bound. Of the difference the limiter takes most (queue, parking), the answer with its reason less than one. A bound that is told the
  right number, and failsafe-go, have from 4 % less to 4 % more goodput there, for a quarter of the critical answers.
- **Success at 0.7×.** The host takes a fifth of the core in many of these cells, and the bursts in which it does are overload like any other. cpu1y was measured six times with the
  present code: 1.000 in five runs, and 0.855 with all critical ones answered in one.
- **Goodput at 1.5× and 2×.** With 16 ms a request one more at a time would make the next one wait for longer than 10 ms, which is what control allows. So the target is 1 or 2, and when a request
  ends and the next has not arrived yet the processor has nothing to do. What more would cost at the tail is in [control.md](control.md#tried-and-lost).
- **p99 of critical requests at 4×.** They alone are 0.8 of the capacity, 0.84 of what refusing the others leaves. Tasks of equal length that come at random to a server which is that busy wait for 13
  executions at the 99th percentile (M/D/1): 55 ms for 4 ms each, before they are accepted and run. For 16 ms it is 210 ms of the 250, and so some are lost.
- **p50 with 16 ms and scheduling points.** Five at a time share the processor in turns of 250 us. Nobody waits for longer than about a millisecond, so no delay says that they are too many, and each takes five times
  as long as alone. A baseline from quieter times would say so; under load from the start there is none.
- **The step with 16 ms.** A fresh warden lets 16 tasks run, because nothing is known of them yet. On one processor these are 256 ms of work in the run queue, in which all of them are late.
  With 16 ms a request the first half second has a goodput of 0.5 to 0.6, the second 0.7, the third is right.
- **2 ms of computing, 20 ms of waiting, 2 ms of computing.** The target stays a little below what would keep the processor full all the time: delays come in bursts, and tell less than they seem to.
- **Refusals.** Those that were queued first, and those that make room after 20 ms, pull the median up by 1 to 3 ms where few are refused.
`

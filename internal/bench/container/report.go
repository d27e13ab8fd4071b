// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The report: all runs as JSON, and tables with their medians and ranges.

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// run is what came of one server.
type run struct {
	Cell, Mode string
	Round      int
	Seed       uint64
	Seconds    float64 // that count
	Commit     string
	Good       float64 // answers in time a second
	Clients    tally
	Server     report
	PeakMB     float64 // resident
	CPU        float64 // processors used
	Killed     float64 // seconds after the start; 0: not
	Note       string  `json:",omitempty"`
}

func (r run) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%-28s %-5s round %d: %6.1f good/s, %d rejected, %d left, %d failed, limit %d to %d, %d running at most, peak %.0f MiB, live %.0f, collector %.0f %%, %d cycles, cpu %.2f, late %.0f ms",
		r.Cell, r.Mode, r.Round, r.Good, r.Clients.Rejected, r.Clients.Left, r.Clients.Failed, r.Server.Least, r.Server.Most,
		r.Server.PeakRunning, r.PeakMB, r.Server.LiveMB, 100*r.Server.Collector, r.Server.Collections, r.CPU, r.Clients.LateMS)
	if r.Killed > 0 {
		fmt.Fprintf(&text, ", KILLED at %.1f s", r.Killed)
	}
	for _, code := range []string{"memory", "memory/tighten", "starved"} {
		if n := r.Server.Codes[code]; n > 0 {
			fmt.Fprintf(&text, ", %s %d of %d", code, n, r.Server.Samples)
		}
	}
	if r.Note != "" {
		text.WriteString(", " + r.Note)
	}
	if r.Server.LastReason != "" {
		text.WriteString(", last: " + r.Server.LastReason)
	}
	return text.String()
}

// evidence has the runs of one or several sessions.
type evidence struct {
	Procs int // GOMAXPROCS of the servers without neighbours
	Runs  []run
	Costs []cost
}

const folder = "docs/evidence"

func open(root string) (*evidence, error) {
	e := &evidence{}
	if root == "" {
		return e, nil
	}
	b, err := os.ReadFile(filepath.Join(root, folder, "container.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	return e, errors.Join(err, json.Unmarshal(b, e))
}

func (e *evidence) has(cell, mode string, round int) bool {
	return slices.ContainsFunc(e.Runs, func(r run) bool {
		return r.Cell == cell && r.Mode == mode && r.Round == round && r.Commit == commit()
	})
}

// put adds a run, or replaces the earlier one.
func (e *evidence) put(r run) {
	e.Runs = slices.DeleteFunc(e.Runs, func(o run) bool { return o.Cell == r.Cell && o.Mode == r.Mode && o.Round == r.Round })
	e.Runs = append(e.Runs, r)
}

func (e *evidence) write(root string) error {
	if root == "" {
		return nil
	}
	b, err := json.MarshalIndent(e, "", " ")
	return errors.Join(err, os.WriteFile(filepath.Join(root, folder, "container.json"), append(b, '\n'), 0o644),
		os.WriteFile(filepath.Join(root, folder, "container.md"), []byte(e.document()), 0o644))
}

// of returns the runs of a cell in a mode.
func (e *evidence) of(cell, mode string) (all []run) {
	for _, r := range e.Runs {
		if r.Cell == cell && r.Mode == mode && r.Note == "" {
			all = append(all, r)
		}
	}
	return all
}

// best returns the constant with the most goodput, by median, of those that were not killed and kept GOMEMLIMIT; 0: none did.
func (e *evidence) best(c *cell) (n int, good float64) {
	broke := func(r run) bool { return r.Killed > 0 || c.mostLive > 0 && r.Server.LiveMB > float64(c.mostLive)/mb }
	name := c.name
	if c.oracle != "" {
		name = c.oracle
	}
	good = -1
	for _, r := range e.Runs {
		m, err := strconv.Atoi(r.Mode)
		if err != nil || r.Cell != name {
			continue
		}
		all := e.of(name, r.Mode)
		if g, _, _ := spread(all, goodOf); g > good && !slices.ContainsFunc(all, broke) {
			n, good = m, g
		}
	}
	return n, good
}

func goodOf(r run) float64 { return r.Good }

// spread returns the median of a figure, the least and the most.
func spread(all []run, of func(run) float64) (median, least, most float64) {
	if len(all) == 0 {
		return 0, 0, 0
	}
	var v []float64
	for _, r := range all {
		v = append(v, of(r))
	}
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2, v[0], v[n-1]
}

// figure is a median with its range where that says more.
func figure(all []run, decimals int, of func(run) float64) string {
	if len(all) == 0 {
		return ""
	}
	text := func(v float64) string { return strconv.FormatFloat(v, 'f', decimals, 64) }
	median, least, most := spread(all, of)
	if text(least) == text(most) {
		return text(median)
	}
	return text(median) + " (" + text(least) + "–" + text(most) + ")"
}

// kills is how many were killed, and when.
func kills(all []run) string {
	var at []string
	for _, r := range all {
		if r.Killed > 0 {
			at = append(at, fmt.Sprintf("%.1f s", r.Killed))
		}
	}
	if at == nil {
		return "–"
	}
	return fmt.Sprintf("%d of %d: %s", len(at), len(all), strings.Join(at, ", "))
}

func limits(all []run) string {
	least, most := 0, 0
	for i, r := range all {
		if i == 0 {
			least = r.Server.Least
		}
		least, most = min(least, r.Server.Least), max(most, r.Server.Most)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

const preamble = `# In a container that is too small

` + "`make container`" + ` (internal/bench/container) measures this page. Each run is a server of its own over real HTTP on loopback, with one way of limiting in front of one kind of work, and an open
loop of clients in another process. [container.json](container.json) has all runs with all that was measured of each, and the commit of each: they are from several.

- *Ways*: ours is ` + "`warden.Config{}`" + ` behind wardenhttp; a constant is the same with Control.Min, Max and Initial set to a number, and of several the best counts that was not
  killed and did not break GOMEMLIMIT by what it holds alone; bare is net/http alone.
- *Rounds*: every way of a cell runs in turn, and the next round has the reverse order. An entry is the median, with the range from the least to the most where they differ. Bare servers and constants may have
  fewer rounds.
- *Clients* send at even distances, each request moved by up to half a distance, and leave when an answer takes longer than their patience from the instant at which the request should have been sent. Good are answers
  in time. The first seconds do not count, except for kills: as long as a request holds its memory, 1 s at least, or 3 s beside neighbours. Nor does what is unanswered at the end.
- *Memory*: requests hold 8 or 20 MiB (here written MB) for 2 s (short: 0.3 s), flat as one piece or as a tree of nodes of 48 bytes. GOMEMLIMIT is 256 MiB, and 0.7 of it divided by what a request holds fits at once; at 1x so much
  arrives. Clients stay for 8 s. A server is killed when it holds 512 MiB (without any limit: 4 GiB): by the lab, which looks every 20 ms, or by the kernel in a cgroup (v1) with that limit (cgroup), also without GOMEMLIMIT (hard).
- *Collector* is its share of the processor time that the process used, as the runtime says.

`

func (e *evidence) document() string {
	var b strings.Builder
	b.WriteString(preamble)
	all := cells(1, 1)
	e.targets(&b, all)
	e.memory(&b, all)
	e.healthy(&b, all)
	e.neighbours(&b, all)
	e.costs(&b)
	b.WriteString("\n## Not measured\n\nA quiet machine; cgroups v2; a machine with more than a few processors; a neighbour that is not always busy; swap; requests whose sizes differ; memory that cgo or a mapping holds.\n")
	return b.String()
}

func (e *evidence) memory(b *strings.Builder, all []cell) {
	b.WriteString("\n## Memory\n\n| cell | bare | bare killed | best constant | **ours** | of the best | rejected | left | killed | limit | peak MiB | collector | bare's |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for i := range all {
		c := &all[i]
		ours, bare := e.of(c.name, "ours"), e.of(c.name, "bare")
		if !strings.HasPrefix(c.name, "memory/") || len(ours)+len(bare) == 0 {
			continue
		}
		n, best := e.best(c)
		constant, ratio := "", ""
		if n > 0 {
			constant = fmt.Sprintf("%.1f (%d)", best, n)
			if best > 0 {
				ratio = figure(ours, 2, func(r run) float64 { return r.Good / best })
			}
		}
		fmt.Fprintf(b, "| %s, %s | %s | %s | %s | **%s** | %s | %s | %s | %s | %s | %s | %s | %s |\n",
			strings.TrimPrefix(c.name, "memory/"), c.about, figure(bare, 1, goodOf), kills(bare), constant, figure(ours, 1, goodOf), ratio,
			figure(ours, 0, func(r run) float64 { return float64(r.Clients.Rejected) }),
			figure(ours, 0, func(r run) float64 { return float64(r.Clients.Left + r.Clients.Failed) }), kills(ours), limits(ours),
			figure(ours, 0, func(r run) float64 { return r.PeakMB }), figure(ours, 2, func(r run) float64 { return r.Server.Collector }),
			figure(bare, 2, func(r run) float64 { return r.Server.Collector }))
	}
}

func (e *evidence) healthy(b *strings.Builder, all []cell) {
	b.WriteString("\n## Healthy\n\nTarget: no sample lowers the limit for memory.\n\n| cell | good/s, of | samples | lowered for memory | least limit then | limit | peak MiB |\n|---|---|---|---|---|---|---|\n")
	for i := range all {
		c := &all[i]
		ours := e.of(c.name, "ours")
		if !c.healthy || len(ours) == 0 {
			continue
		}
		samples, lowered, least := 0, 0, 0
		for _, r := range ours {
			samples, lowered = samples+r.Server.Samples, lowered+r.Server.Codes["memory/tighten"]
			if l := r.Server.LeastMemory; l > 0 && (least == 0 || l < least) {
				least = l
			}
		}
		fmt.Fprintf(b, "| %s, %s | %s of %.1f | %d | %d | %d | %s | %s |\n", c.name, c.about, figure(ours, 1, goodOf), c.rate, samples, lowered,
			least, limits(ours), figure(ours, 0, func(r run) float64 { return r.PeakMB }))
	}
}

func starved(r run) float64 {
	return float64(r.Server.Codes["starved"]) / float64(max(1, r.Server.Samples))
}

func (e *evidence) neighbours(b *strings.Builder, all []cell) {
	b.WriteString("\n## A neighbour\n\nThe server has one processor, on which four other processes compute without a pause. Clients stay for 1 s. *Starved* is the share of samples whose reasons say so.\n\n" +
		"| cell | bare | best constant | **ours** | of the best | starved | rejected | left | limit | processors used |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for i := range all {
		c := &all[i]
		ours := e.of(c.name, "ours")
		if c.neighbour == 0 || len(ours) == 0 {
			continue
		}
		n, best := e.best(c)
		fmt.Fprintf(b, "| %s | %s | %.1f (%d) | **%s** | %s | %s | %s | %s | %s | %s |\n", c.about, figure(e.of(c.name, "bare"), 1, goodOf), best, n,
			figure(ours, 1, goodOf), figure(ours, 2, func(r run) float64 { return r.Good / max(best, 1e-9) }), figure(ours, 2, starved),
			figure(ours, 0, func(r run) float64 { return float64(r.Clients.Rejected) }),
			figure(ours, 0, func(r run) float64 { return float64(r.Clients.Left + r.Clients.Failed) }), limits(ours),
			figure(ours, 2, func(r run) float64 { return r.CPU }))
	}
}

func (e *evidence) costs(b *strings.Builder) {
	if len(e.Costs) == 0 {
		return
	}
	b.WriteString("\n## A sample\n\nProcessor time of a hundred samples, one every 100 ms, beside threads that block in the kernel.\n\n" +
		"| threads | median | p90 | worst | worst by the clock | allocations, mean and most |\n|---|---|---|---|---|---|\n")
	for _, c := range e.Costs {
		fmt.Fprintf(b, "| %d | %.0f µs | %.0f µs | %.0f µs | %.0f µs | %.1f, %.0f |\n", c.Threads, c.Median, c.P90, c.Worst, c.WorstWall,
			c.Allocations, c.MostAtOne)
	}
}

// targets says what was promised, and in how many cells it was kept.
func (e *evidence) targets(b *strings.Builder, all []cell) {
	type count struct {
		met    int
		missed []string
	}
	counts := map[string]*count{}
	add := func(target, what string, ok bool) {
		c := counts[target]
		if c == nil {
			c = &count{}
			counts[target] = c
		}
		if ok {
			c.met++
		} else {
			c.missed = append(c.missed, what)
		}
	}
	for i := range all {
		c := &all[i]
		ours := e.of(c.name, "ours")
		for _, r := range ours {
			name := fmt.Sprintf("%s round %d", c.name, r.Round+1)
			if strings.HasPrefix(c.name, "memory/") {
				add("memory: no kills, in runs", name, r.Killed == 0)
			}
			if c.healthy {
				add("healthy: no sample lowers the limit for memory, in runs", fmt.Sprintf("%s: %d", name, r.Server.Codes["memory/tighten"]),
					r.Server.Codes["memory/tighten"] == 0)
			}
			if c.neighbour > 0 {
				add("neighbour: `starved` in 95 % of the samples, in runs", fmt.Sprintf("%s: %.2f", name, starved(r)), starved(r) >= 0.95)
			}
		}
		n, best := e.best(c)
		if len(ours) == 0 || n == 0 || best <= 0 {
			continue
		}
		median, _, _ := spread(ours, goodOf)
		what := fmt.Sprintf("%s: %.2f", c.name, median/best)
		switch {
		case c.neighbour > 0:
			add("neighbour: goodput ≥ 0.95 of the best constant's, in cells", what, median/best >= 0.95)
		case c.work.Tree:
			add("memory, trees: goodput ≥ 0.6 of the best constant's, in cells", what, median/best >= 0.6)
		default:
			add("memory, flat: goodput ≥ 0.8 of the best constant's, in cells", what, median/best >= 0.8)
		}
	}
	for _, c := range e.Costs {
		add("sample: at most 200 µs, by the number of threads", fmt.Sprintf("%d: %.0f µs", c.Threads, c.Worst), c.Worst <= 200)
		add("sample: no allocation that grows with the threads", fmt.Sprintf("%d: %.0f", c.Threads, c.MostAtOne),
			c.MostAtOne <= e.Costs[0].MostAtOne+1)
	}
	b.WriteString("\n## Targets\n\n| target | measured | met | missed |\n|---|---|---|---|\n")
	for _, target := range slices.Sorted(maps.Keys(counts)) {
		c := counts[target]
		fmt.Fprintf(b, "| %s | %d | %d | %s |\n", target, c.met+len(c.missed), c.met, strings.Join(c.missed, "; "))
	}
}

// commit returns the commit of this program, with a star if it was changed.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(8, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "*"
		}
	}
	if revision == "" { // go run does not stamp
		b, err := exec.Command("git", "rev-parse", "--short=8", "HEAD").Output() //nolint:noctx // it ends at once
		if err != nil {
			return "unknown"
		}
		revision = strings.TrimSpace(string(b))
	}
	return revision + changed
}

// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The report: all cells as JSON, one a line, and the generated sections of the pages that are made of them.

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// report has the cells of one run or several.
type report struct {
	Go       string   `json:"go"`
	Peers    []string `json:"peers"`
	Programs []string `json:"programs"` // of the experiment caddy
	Cells    []Cell   `json:"cells"`
}

// evidence is the report's folder in a checkout, and raw the file there to which each run is added. It is not committed.
const evidence, raw = "docs/evidence", "bin/lab.jsonl"

// open reads the report of a checkout, if there is one.
func open(root string) (*report, error) {
	r := &report{}
	b, err := os.ReadFile(filepath.Join(root, evidence, "overload.json"))
	if root == "" || errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	return r, errors.Join(err, json.Unmarshal(b, r))
}

// about says what is measured.
func (r *report) about(l *lab) {
	switch r.Go = runtime.Version(); l.name {
	case "overload":
		r.Peers = versions()
	case "caddy":
		r.Programs = nil
		for _, args := range [][]string{{l.caddy, "version"}, {"nginx", "-v"}, {"haproxy", "-v"}, {"gunicorn", "--version"},
			{"node", "--version"}, {phpFPM(), "-v"}} {
			out, _ := exec.Command(args[0], args[1:]...).CombinedOutput()
			line, _, _ := strings.Cut(string(out), "\n")
			r.Programs = append(r.Programs, strings.TrimSuffix(filepath.Base(args[0]), ".bin")+" "+line)
		}
	}
}

// put adds a cell, or replaces the earlier measurement of it.
func (r *report) put(c Cell) {
	if old := r.find(c.Workload, c.Load, c.Kind, c.Way); old != nil {
		*old = c
		return
	}
	r.Cells = append(r.Cells, c)
}

func (r *report) find(workload string, load float64, kind, way string) *Cell {
	i := slices.IndexFunc(r.Cells, func(c Cell) bool {
		return c.Workload == workload && c.Load == load && c.Kind == kind && c.Way == way
	})
	if i < 0 {
		return nil
	}
	return &r.Cells[i]
}

// write writes the cells and everything derived from them into a checkout.
func (r *report) write(root string) error {
	if root == "" {
		return nil
	}
	pages, err := r.pages(root)
	for file, content := range pages {
		err = errors.Join(err, os.WriteFile(filepath.Join(root, file), []byte(content), 0o644))
	}
	return err
}

// keep adds a run to the raw rows of a checkout.
func (c *Cell) keep(root string) error {
	if root == "" {
		return nil
	}
	file := filepath.Join(root, raw)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(f).Encode(c), f.Close())
}

// pages returns the generated files, and the existing pages with a generated section.
func (r *report) pages(root string) (map[string]string, error) {
	all := map[string]string{evidence + "/overload.json": r.json(), evidence + "/overload.svg": r.plot()}
	var err error
	for file, section := range map[string]string{
		"README.md": r.summary(), evidence + "/overload.md": r.overload(),
		evidence + "/container.md": r.container(), evidence + "/caddy.md": r.caddy(),
	} {
		page, readErr := os.ReadFile(filepath.Join(root, file))
		if readErr == nil {
			all[file] = insert(string(page), section)
		} else if !errors.Is(readErr, fs.ErrNotExist) {
			err = errors.Join(err, readErr)
		}
	}
	return all, err
}

// json has a line for each cell.
func (r *report) json() string {
	text := func(v any) string {
		b, _ := json.Marshal(v)
		return string(b)
	}
	var cells []string
	for i := range r.Cells {
		cells = append(cells, text(&r.Cells[i]))
	}
	return fmt.Sprintf("{\"go\": %s, \"peers\": %s, \"programs\": %s, \"cells\": [\n%s\n]}\n", text(r.Go), text(r.Peers), text(r.Programs),
		strings.Join(cells, ",\n"))
}

// The markers around the generated section of a page.
const sectionBegins, sectionEnds = "<!-- begin: make lab -->\n", "<!-- end: make lab -->\n"

// insert replaces the section between the markers of a page. It changes nothing in a page without markers or with an empty
// section.
func insert(page, section string) string {
	before, rest, found := strings.Cut(page, sectionBegins)
	_, after, closed := strings.Cut(rest, sectionEnds)
	if !found || !closed || section == "" {
		return page
	}
	return before + sectionBegins + section + sectionEnds + after
}

// overloaded are the workloads of the table of README: bound ones.
func overloaded() []workload {
	return slices.DeleteFunc(overloadWork(), func(w workload) bool { return w.unbound() })
}

// summary is the table of the README: bound workloads at 2× and 4×, beside the best peer of each cell.
func (r *report) summary() string {
	var b strings.Builder
	b.WriteString("| work | Stopbank at 2× | best peer | Stopbank at 4× | best peer |\n|---|---|---|---|---|\n")
	for _, w := range overloaded() {
		twice, four := r.find(w.name, 2, untold, "warden"), r.find(w.name, 4, untold, "warden")
		if twice != nil && four != nil {
			fmt.Fprintf(&b, "| %s | **%s** | %s | **%s** | %s |\n", w.about, twice.entry(), r.best(w.name, 2), four.entry(),
				r.best(w.name, 4))
		}
	}
	return b.String() + "\n" + r.losses()
}

// losses says where a peer gets more done: of the cells of the README, by how much at most, and with which critical share.
func (r *report) losses() string {
	cells, lost, most, critical := 0, map[*Cell]bool{}, 0.0, 0.0
	for _, w := range overloaded() {
		for _, load := range []float64{2, 4} {
			ours := r.find(w.name, load, untold, "warden")
			if ours == nil {
				continue
			}
			cells++
			for _, c := range r.peers(w.name, load) {
				if c.Goodput > ours.Goodput {
					lost[ours], most, critical = true, max(most, c.Goodput-ours.Goodput), max(critical, c.Critical)
				}
			}
		}
	}
	return fmt.Sprintf("Another law has the higher goodput in %d of these %d cells, by at most %.3f, and answers at most %.2f of the critical requests there.\n",
		len(lost), cells, most, critical)
}

// versions lists the peers in this binary with their versions.
func versions() (all []string) {
	peers := []string{"github.com/failsafe-go/failsafe-go", "github.com/zeromicro/go-zero", "github.com/go-kratos/aegis", "golang.org/x/sync"}
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if slices.Contains(peers, m.Path) {
			all = append(all, m.Path+" "+m.Version)
		}
	}
	return all
}

// overload is a row for each workload and load, and what was promised.
func (r *report) overload() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| work | load | ceiling | **told nothing** | p99 of critical (queue) | told | best peer |\n|---|---|---|---|---|---|---|\n")
	for _, w := range overloadWork() {
		for _, load := range r.loads(w, untold) {
			c := r.find(w.name, load, untold, "warden")
			queue := ""
			if c.Queue != nil {
				queue = fmt.Sprintf(" (%.0f)", c.Queue.P99Crit)
			}
			fmt.Fprintf(&b, "| %s | %s | %.2f | **%s** | %.0f ms%s | %s | %s |\n", w.about, w.loadName(load), c.Ceiling,
				c.entry(), c.P99Crit, queue, r.find(w.name, load, told, "warden").entry(), r.best(w.name, load))
		}
	}
	return b.String() + "\n" + r.kept("overload") + "\n" + r.Go + ", " + strings.Join(r.Peers, ", ") + ".\n"
}

// loads returns the loads of a workload at which ours was measured with such clients, in order.
func (r *report) loads(w workload, kind string) (all []float64) {
	for _, c := range r.Cells {
		if c.Workload == w.name && c.Kind == kind && c.Way == "warden" {
			all = append(all, c.Load)
		}
	}
	slices.Sort(all)
	return all
}

// container is a row for each work and load: requests answered in time per second, and of the best constant's.
func (r *report) container() string {
	entry := func(c *Cell, best *Cell) string {
		switch {
		case c == nil:
			return ""
		case c.killed() > 0:
			return fmt.Sprintf("%s, killed at %.1f s", c.figure(1), c.killed())
		case best == nil:
			return c.figure(1)
		}
		return fmt.Sprintf("%s: %.2f", c.figure(1), c.Goodput/best.Goodput)
	}
	var b strings.Builder
	b.WriteString("| work | load | bare | best constant | **ours** | and in a cgroup | in a cgroup alone |\n|---|---|---|---|---|---|---|\n")
	for _, g := range containerGroups() {
		for _, load := range g.loads {
			w, kind := g.work, g.kind
			ours := r.find(w.name, load, kind, "warden")
			if ours == nil || g.grouped() {
				continue
			}
			best, constant := r.constant(w.name, load, kind), ""
			if best != nil {
				constant = fmt.Sprintf("%.1f (%s)", best.Goodput, strings.TrimPrefix(best.Way, "constant "))
			}
			fmt.Fprintf(&b, "| %s | %.1f/s | %s | %s | **%s** | %s | %s |\n", w.about, load*w.rate, entry(r.find(w.name, load, kind, "none"), nil), constant,
				entry(ours, best), entry(r.find(w.name, load, cgroup, "warden"), best), entry(r.find(w.name, load, hard, "warden"), nil))
		}
	}
	return b.String() + "\n" + r.kept("container")
}

// constant returns the constant with the most goodput, of those that were not killed and did not break GOMEMLIMIT by what they held.
func (r *report) constant(work string, load float64, kind string) (best *Cell) {
	for i := range r.Cells {
		c := &r.Cells[i]
		fits := c.killed() == 0 && (kind != goLimit || c.Inside == nil || c.Inside.LiveMB <= softLimit/mb)
		if c.Workload == work && c.Load == load && c.Kind == kind && strings.HasPrefix(c.Way, "constant ") && fits &&
			(best == nil || c.Goodput > best.Goodput) {
			best = c
		}
	}
	return best
}

// caddy is a row for each service and load, and a column for each front.
func (r *report) caddy() string {
	var b strings.Builder
	b.WriteString("| service | load")
	for _, f := range fronts() {
		fmt.Fprintf(&b, " | %s", f.name)
	}
	b.WriteString(" |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, g := range caddyGroups() {
		for _, load := range g.loads {
			if len(r.find(g.work.name, load, g.kind, "ours").entry()) == 0 || g.kind == "cost" {
				continue
			}
			fmt.Fprintf(&b, "| %s | %g×", g.work.about, load)
			for _, f := range fronts() {
				if c := r.find(g.work.name, load, g.kind, f.name); c != nil {
					fmt.Fprintf(&b, " | %.2f / %.2f / %.2f", c.Goodput, c.Critical, c.Left)
				} else {
					b.WriteString(" |")
				}
			}
			b.WriteString(" |\n")
		}
	}
	return b.String() + "\n" + r.kept("caddy") + "\n" + strings.Join(r.Programs, ", ") + ".\n"
}

// peers are the results of other libraries, of those that were measured.
func (r *report) peers(workload string, load float64) (all []*Cell) {
	for _, v := range ways() {
		if c := r.find(workload, load, untold, v.name); v.peer && c != nil {
			all = append(all, c)
		}
	}
	return all
}

// bestCell is the result of the best peer; nil if none was measured.
func (r *report) bestCell(workload string, load float64) (best *Cell) {
	for _, c := range r.peers(workload, load) {
		if best == nil || c.Goodput > best.Goodput+0.01 || c.Goodput > best.Goodput-0.01 && c.Critical > best.Critical {
			best = c
		}
	}
	return best
}

// best formats the best peer of a cell.
func (r *report) best(workload string, load float64) string {
	if c := r.bestCell(workload, load); c != nil {
		return c.Way + " " + c.entry()
	}
	return ""
}

// entry formats a measurement; empty if there is none.
func (c *Cell) entry() string {
	if c == nil {
		return ""
	}
	mark := ""
	if c.Doubt != "" {
		mark = " ?"
	}
	return c.figure(2) + " / " + c.ranged(2, c.Critical, func(r Round) float64 { return r.Critical }) + mark
}

// figure is the goodput.
func (c *Cell) figure(decimals int) string {
	return c.ranged(decimals, c.Goodput, func(r Round) float64 { return r.Goodput })
}

// ranged is a value, with the range of the rounds if there is one.
func (c *Cell) ranged(decimals int, value float64, of func(Round) float64) string {
	text := func(v float64) string { return fmt.Sprintf("%.*f", decimals, v) }
	if c.Rounds == nil {
		return text(value)
	}
	if least, _, most := c.spread(of); text(least) != text(most) {
		return text(value) + " (" + text(least) + "–" + text(most) + ")"
	}
	return text(value)
}

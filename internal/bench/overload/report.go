//go:build linux

// The report: one table of what a server reaches that is told nothing, targets met and missed alike; all cells as JSON.

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
)

// report is what has been measured, in one run or several.
type report struct {
	Go    string   `json:"go"`
	Peers []string `json:"peers"`
	Cells []Cell   `json:"cells"`
}

// evidence is where the report lies in a checkout.
const evidence = "docs/evidence"

// open reads the report of a checkout, which may have none.
func open(root string) (*report, error) {
	r := &report{}
	b, err := os.ReadFile(filepath.Join(root, evidence, "overload.json"))
	if root == "" || errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	return r, errors.Join(err, json.Unmarshal(b, r))
}

// put adds a cell, or replaces what was measured of it before.
func (r *report) put(c Cell) {
	if old := r.find(c.Workload, c.Load, c.Knows, c.Variant); old != nil {
		*old = c
		return
	}
	r.Cells = append(r.Cells, c)
}

func (r *report) find(workload string, load float64, knows, variant string) *Cell {
	i := slices.IndexFunc(r.Cells, func(c Cell) bool {
		return c.Workload == workload && c.Load == load && c.Knows == knows && c.Variant == variant
	})
	if i < 0 {
		return nil
	}
	return &r.Cells[i]
}

// write puts the cells and all that is made of them into a checkout.
func (r *report) write(root string) error {
	pages, err := r.pages(root)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(root, evidence), 0o755); err != nil {
		return err
	}
	for file, content := range pages {
		err = errors.Join(err, os.WriteFile(filepath.Join(root, file), []byte(content), 0o644))
	}
	return err
}

// pages are the files that are made of the cells, and those that have a section of them, as far as they exist.
func (r *report) pages(root string) (map[string]string, error) {
	b, err := json.MarshalIndent(r, "", " ")
	all := map[string]string{
		evidence + "/overload.json": string(b) + "\n", evidence + "/overload.md": r.document(), evidence + "/overload.svg": r.plot(),
	}
	for file, section := range map[string]string{"docs/production.md": r.firstSeconds(), "README.md": r.summary()} {
		page, readErr := os.ReadFile(filepath.Join(root, file))
		switch {
		case errors.Is(readErr, fs.ErrNotExist):
		case readErr != nil:
			err = errors.Join(err, readErr)
		default:
			all[file] = insert(string(page), section)
		}
	}
	return all, err
}

// summary is the table of the README: work that is bound, at 2× and 4×, beside the best peer of each cell.
func (r *report) summary() string {
	entry := func(c *Cell) string {
		if c == nil {
			return ""
		}
		return fmt.Sprintf("%.2f / %.2f", c.Goodput, c.Critical)
	}
	var b strings.Builder
	b.WriteString("| work | Stopbank at 2× | best peer | Stopbank at 4× | best peer |\n|---|---|---|---|---|\n")
	for _, w := range workloads() {
		twice, four := r.find(w.name, 2, untold, "warden"), r.find(w.name, 4, untold, "warden")
		if !w.unbound() && twice != nil && four != nil {
			fmt.Fprintf(&b, "| %s | **%s** | %s | **%s** | %s |\n", w.about, entry(twice), entry(r.bestCell(w.name, 2)), entry(four), entry(r.bestCell(w.name, 4)))
		}
	}
	return b.String()
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

const preamble = `# Overload over HTTP

` + "`make overload`" + ` (internal/bench/overload) measures this page. One process serves real HTTP over loopback on one core, with one way of protection
in front of one kind of work; a generator on another core sends an open loop of requests at random times (Poisson, the same for every variant), which does not slow down
when answers are late. [overload.json](overload.json) has all cells with all that was measured of each.

- *Clients* leave when an answer takes longer than 250 ms from the instant at which the request should have been sent, or than three times the call where a call only waits. One in five is critical.
- *Told nothing*: nobody says so to the server, which sees a connection closed. *Told*: the request's context has a deadline. *POST*: nobody says so, and the request has a body that
  the handler has yet to read; until then net/http does not see its client leave. *HTTP/2*: nobody says so, and streams are reset.
- *Goodput* is the work answered in time, of the capacity that was measured first, less what other processes and the host took of the core; below the capacity, of what was offered.
- *Ceiling* is the goodput that is left when all that is too much is refused at the cost of a refusal in net/http.
- *Queue* is a priority queue without preemption in virtual time, given the same requests, their costs and how long each client stays.
- A question mark marks a cell that was disturbed each time: the generator was late by more than 5 ms, or others took more than a tenth of the server's cores and what was left was not enough.

`

func (r *report) document() string {
	var b strings.Builder
	b.WriteString(preamble)
	fmt.Fprintf(&b, "%s, %s.\n\n## Told nothing\n\n", r.Go, strings.Join(r.Peers, ", "))
	b.WriteString("Each entry is the goodput and the share of critical requests answered in time; below the capacity the first is the share of all. *Best peer*: the most goodput in the cell, and of\n")
	b.WriteString("those within 0.01 of it the most critical; it is told nothing either.\n\n")
	b.WriteString(r.headline())
	b.WriteString("\n![at four times the capacity, ours and the best peer](overload.svg)\n")
	b.WriteString("\n## Targets\n\nOf `warden`, told nothing unless it says otherwise.\n\n" + r.targets())
	b.WriteString("\n## Variants\n\n| variant | what it is |\n|---|---|\n")
	for _, v := range variants() {
		if slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.Variant == v.name }) {
			fmt.Fprintf(&b, "| %s | %s |\n", v.name, v.about)
		}
	}
	return b.String()
}

// loads are those of a workload that were measured with ours told nothing, in order.
func (r *report) loads(w workload) (all []float64) {
	for _, c := range r.Cells {
		if c.Workload == w.name && c.Knows == untold && c.Variant == "warden" {
			all = append(all, c.Load)
		}
	}
	slices.Sort(all)
	return all
}

// headline is a row for each work and load.
func (r *report) headline() string {
	var b strings.Builder
	b.WriteString("| work | load | ceiling | **told nothing** | p99 of critical (queue) | told | POST | HTTP/2 | best peer |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, w := range workloads() {
		for _, load := range r.loads(w) {
			c := r.find(w.name, load, untold, "warden")
			queue := ""
			if c.Queue != nil {
				queue = fmt.Sprintf(" (%.0f)", c.Queue.P99Crit)
			}
			fmt.Fprintf(&b, "| %s | %s | %.2f | **%s** | %.0f ms%s | %s | %s | %s | %s |\n", w.about, strings.ReplaceAll(w.loadName(load), "x", "×"), c.Ceiling,
				c.entry(), c.P99Crit, queue, r.find(w.name, load, told, "warden").entry(), r.find(w.name, load, post, "warden").entry(),
				r.find(w.name, load, h2, "warden").entry(), r.best(w.name, load))
		}
	}
	return b.String()
}

// entry is what was measured, nothing if nothing was.
func (c *Cell) entry() string {
	if c == nil {
		return ""
	}
	mark := ""
	if c.Doubt != "" {
		mark = " ?"
	}
	return fmt.Sprintf("%.3f / %.3f%s", c.Goodput, c.Critical, mark)
}

// best is the best peer of a cell.
func (r *report) best(workload string, load float64) string {
	if best := r.bestCell(workload, load); best != nil {
		return best.Variant + " " + best.entry()
	}
	return ""
}

// bestCell is what the best peer reached, nil if none was measured.
func (r *report) bestCell(workload string, load float64) *Cell {
	var best *Cell
	for _, v := range variants()[1:] {
		c := r.find(workload, load, untold, v.name)
		if c != nil && (best == nil || c.Goodput > best.Goodput+0.01 || c.Goodput > best.Goodput-0.01 && c.Critical > best.Critical) {
			best = c
		}
	}
	return best
}

// A target is a bound on something of ours.
type target struct {
	text      string
	workloads string // separated by spaces; "": all that are bound
	loads     []float64
	least     float64
	value     func(r *report, c *Cell) (value float64, ok bool)
}

func targets() []target {
	const even = "cpu4 cpu4y app downstream"
	over := []float64{2, 4}
	goodput := func(_ *report, c *Cell) (float64, bool) { return c.Goodput, true }
	success := func(_ *report, c *Cell) (float64, bool) { return c.Success, true }
	return []target{
		{"goodput ≥ 0.97 of the ceiling", even, over, 0.97, func(_ *report, c *Cell) (float64, bool) { return c.Goodput / c.Ceiling, true }},
		{"goodput ≥ 0.95 of the capacity", even, over, 0.95, goodput},
		{"goodput ≥ 0.92, mixed", "mixed", over, 0.92, goodput},
		{"goodput ≥ 0.90, costs of 1:30", "costs", over, 0.90, goodput},
		{"critical at most 0.01 below the queue's", "", over, -0.01, func(_ *report, c *Cell) (float64, bool) {
			return c.Critical - c.Queue.Critical, true
		}},
		{"p99 of critical at most 1.15 × the queue's: queue's / ours ≥ 0.87", "", over, 1 / 1.15, func(_ *report, c *Cell) (float64, bool) {
			return c.Queue.P99Crit / c.P99Crit, c.P99Crit > 0
		}},
		{"told at most 0.02 better, goodput and critical", "", over, -0.02, func(r *report, c *Cell) (float64, bool) {
			if t := r.find(c.Workload, c.Load, told, c.Variant); t != nil {
				return min(c.Goodput-t.Goodput, c.Critical-t.Critical), true
			}
			return 0, false
		}},
		{"answered at 0.7× ≥ 0.99", "", []float64{0.7}, 0.99, success},
		{"answered ≥ 0.99 where nothing bounds", "wait500ms wait2s wait10s", nil, 0.99, success},
	}
}

func (r *report) targets() string {
	var b strings.Builder
	b.WriteString("| target | cells | met | missed |\n|---|---|---|---|\n")
	for _, t := range targets() {
		met, missed := 0, []string{}
		for _, w := range workloads() {
			if t.workloads == "" && w.unbound() || t.workloads != "" && !slices.Contains(strings.Fields(t.workloads), w.name) {
				continue
			}
			for _, load := range r.loads(w) {
				if t.loads != nil && !slices.Contains(t.loads, load) {
					continue
				}
				c := r.find(w.name, load, untold, "warden")
				switch v, ok := t.value(r, c); {
				case !ok:
				case v >= t.least:
					met++
				default:
					missed = append(missed, fmt.Sprintf("%s %s: %.3f", w.name, w.loadName(load), v))
				}
			}
		}
		if met+len(missed) > 0 { // of what was measured
			fmt.Fprintf(&b, "| %s | %d | %d | %s |\n", t.text, met+len(missed), met, strings.Join(missed, "; "))
		}
	}
	return b.String()
}

// firstSeconds is the table of the page of production; "" as long as nothing was measured.
func (r *report) firstSeconds() string {
	var b strings.Builder
	for _, w := range workloads() {
		for _, load := range r.loads(w) {
			c := r.find(w.name, load, untold, "warden")
			if load > 4 || len(c.Seconds) < 3 || !w.unbound() && !slices.Contains([]string{"cpu4", "app", "downstream"}, w.name) {
				continue
			}
			at := func(c *Cell, i int) string {
				if c == nil || len(c.Seconds) <= i {
					return ""
				}
				return fmt.Sprintf("%.2f", c.Seconds[i])
			}
			peer := r.find(w.name, load, untold, "failsafe")
			fmt.Fprintf(&b, "| %s | %.0f | %.2f | %s | %s | %s | %s | %s | %s / %s |\n", w.about, load*c.Capacity, min(1, 1/load), at(c, 0), at(c, 1), at(c, 2), at(c, 4), at(c, 9), at(peer, 0), at(peer, 4))
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return `| work | requests a second | possible | 1st second | 2nd | 3rd | 5th | 10th | failsafe-go, 1st / 5th |
|---|---|---|---|---|---|---|---|---|
` + b.String()
}

// The markers between which a page has a section that is made of the report.
const sectionBegins, sectionEnds = "<!-- begin: make overload -->\n", "<!-- end: make overload -->\n"

// insert puts the section between the markers of a page. A page without markers, or a report without cells, changes nothing.
func insert(page, section string) string {
	before, rest, found := strings.Cut(page, sectionBegins)
	_, after, closed := strings.Cut(rest, sectionEnds)
	if !found || !closed || section == "" {
		return page
	}
	return before + sectionBegins + section + sectionEnds + after
}

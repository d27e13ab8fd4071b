// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The report: one table for untold clients, with met and missed targets alike; all cells as JSON.

package main

import (
	"cmp"
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

// report has the cells of one run or several.
type report struct {
	Go    string   `json:"go"`
	Peers []string `json:"peers"`
	Cells []Cell   `json:"cells"`
}

// evidence is the report's folder in a checkout.
const evidence = "docs/evidence"

// open reads the report of a checkout, if there is one.
func open(root string) (*report, error) {
	r := &report{}
	b, err := os.ReadFile(filepath.Join(root, evidence, "overload.json"))
	if root == "" || errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	return r, errors.Join(err, json.Unmarshal(b, r))
}

// put adds a cell, or replaces the earlier measurement of it.
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

// write writes the cells and everything derived from them into a checkout.
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

// pages returns the generated files, and the existing pages with a generated section.
func (r *report) pages(root string) (map[string]string, error) {
	b, err := json.MarshalIndent(r, "", " ")
	all := map[string]string{
		evidence + "/overload.json": string(b) + "\n", evidence + "/overload.md": r.document(), evidence + "/overload.svg": r.plot(),
	}
	for file, section := range map[string]string{evidence + "/first-seconds.md": r.firstSeconds(), "README.md": r.summary()} {
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

// summary is the table of the README: bound workloads at 2× and 4×, beside the best peer of each cell.
func (r *report) summary() string {
	var b strings.Builder
	b.WriteString("| work | Stopbank at 2× | best peer | Stopbank at 4× | best peer |\n|---|---|---|---|---|\n")
	for _, w := range workloads() {
		twice, four := r.find(w.name, 2, untold, "warden"), r.find(w.name, 4, untold, "warden")
		if !w.unbound() && twice != nil && four != nil {
			fmt.Fprintf(&b, "| %s | **%s** | %s | **%s** | %s |\n", w.about, twice.entry(2), r.best(w.name, 2, 2), four.entry(2),
				r.best(w.name, 4, 2))
		}
	}
	return b.String() + "\n" + r.losses()
}

// losses says where a peer gets more done: of the cells of the README, by how much at most, and with which critical share.
func (r *report) losses() string {
	cells, lost, most, critical := 0, 0, 0.0, 0.0
	for _, w := range workloads() {
		for _, load := range []float64{2, 4} {
			ours := r.find(w.name, load, untold, "warden")
			if w.unbound() || ours == nil {
				continue
			}
			cells++
			margin := 0.0
			for _, v := range variants() {
				if c := r.find(w.name, load, untold, v.name); v.peer && c != nil && c.Goodput > ours.Goodput {
					margin, critical = max(margin, c.Goodput-ours.Goodput), max(critical, c.Critical)
				}
			}
			if margin > 0 {
				lost++
			}
			most = max(most, margin)
		}
	}
	return fmt.Sprintf("Another law has the higher goodput in %d of these %d cells, by at most %.3f, and answers at most %.2f of the critical requests there.\n",
		lost, cells, most, critical)
}

// versions lists the peers in this binary with their versions.
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
in front of one kind of work; [flood](../guides/flood.md) on another core sends it an open loop of requests at random times (Poisson, the same for every variant of a round), which does not slow down
when answers are late. [overload.json](overload.json) has all cells, with more figures of each.

- *Rounds*: a cell has one, or several as README's do (` + "`make overload OVERLOAD=-headline`" + `: five, or fewer where a run was ended before). A round measures the capacity, and then runs every variant for some seconds, in a process of its own and after
  2 s of warm-up, or none where nothing bounds the calls: 6 s with -headline, else 5 s, more where calls are long. go-zero and aegis, which follow a slow average of the processors' use, warm up for 25 s. The next round has the reverse order. An entry is
  the median, with the range from the least to the most round where they differ; what is neither goodput nor critical is of the round with the median goodput. A peer whose first round of a cell
  has a goodput below 0.1, or more than 0.1 below the best peer's, has no other round there.
- *Pairs*: two variants, or two builds of one (` + "`-pair warden@old/overload,warden`" + `), are compared by pairs of such runs, in the order ABBA. The capacity is measured before and after each pair: if the
  two differ by more than 5 %, the pair is void and repeated, at most three times. Printed are the mean difference of the pairs with its 95 % confidence interval (Student's t), and how many were void.
- *Clients* leave when an answer takes longer than 250 ms from the instant at which the request should have been sent, or than three times the call where nothing bounds the calls. One in five is critical.
- *Told nothing*: nobody says so to the server, which sees a connection closed. *Told*: the request's context has a deadline. *POST*: nobody says so, and the request has a body that
  the handler has yet to read; until then net/http does not see its client leave. *HTTP/2*: nobody says so, and streams are reset.
- *Goodput* is the work answered in time, of the capacity that was measured at the beginning of the round, less what other processes and the host took of the core where the work is computing; below the capacity, of what was offered.
- *Ceiling* is the goodput that is left when all that is too much is refused at the processor time of a refusal in net/http.
- *Queue* is a priority queue without preemption in virtual time, given the same requests, their costs and how long each client stays.
- A question mark marks a cell of which a round was disturbed, and its repetition too: the generator was late by more than 5 ms at the 99th percentile, or others took more than a tenth of the server's cores and what was left was not enough.

`

func (r *report) document() string {
	var b strings.Builder
	b.WriteString(preamble)
	fmt.Fprintf(&b, "%s, %s.", r.Go, strings.Join(r.Peers, ", "))
	b.WriteString("\n\n## Told nothing\n\n")
	b.WriteString("Each entry is the goodput and the share of critical requests answered in time; below the capacity the first is the share of all. *Best peer*: the most goodput in the cell, and of\n")
	b.WriteString("those within 0.01 of it the most critical; it is told nothing either.\n\n")
	b.WriteString(r.headline())
	b.WriteString("\n![at four times the capacity, ours and the best peer](overload.svg)\n")
	b.WriteString(r.noes())
	b.WriteString("\n## Targets\n\nOf `warden`, told nothing unless it says otherwise.\n\n" + r.targets())
	b.WriteString("\n## Variants\n\n| variant | what it is |\n|---|---|\n")
	for _, v := range variants() {
		if slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.Variant == v.name }) {
			fmt.Fprintf(&b, "| %s | %s |\n", v.name, v.about)
		}
	}
	b.WriteString("\n## Not measured\n\nA network between clients and server; TLS; a server with more than one core, or one that shares it with something else; request bodies of more than 100 bytes; peers that are " +
		"tuned to the work; several servers ([the fleet](fleet.md) is a simulation).\n")
	return b.String()
}

// loads returns the loads of a workload at which ours was measured with such clients, in order.
func (r *report) loads(w workload, knows string) (all []float64) {
	for _, c := range r.Cells {
		if c.Workload == w.name && c.Knows == knows && c.Variant == "warden" {
			all = append(all, c.Load)
		}
	}
	slices.Sort(all)
	return all
}

// headline is a row for each workload and load.
func (r *report) headline() string {
	var b strings.Builder
	b.WriteString("| work | load | ceiling | **told nothing** | p99 of critical (queue) | told | POST | HTTP/2 | best peer |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, w := range workloads() {
		for _, load := range r.loads(w, untold) {
			c := r.find(w.name, load, untold, "warden")
			queue := ""
			if c.Queue != nil {
				queue = fmt.Sprintf(" (%.0f)", c.Queue.P99Crit)
			}
			fmt.Fprintf(&b, "| %s | %s | %.2f | **%s** | %.0f ms%s | %s | %s | %s | %s |\n", w.about,
				strings.ReplaceAll(w.loadName(load), "x", "×"), c.Ceiling,
				c.entry(3), c.P99Crit, queue, r.find(w.name, load, told, "warden").entry(3), r.find(w.name, load, post, "warden").entry(3),
				r.find(w.name, load, h2, "warden").entry(3), r.best(w.name, load, 3))
		}
	}
	return b.String()
}

// noes is the section about who is told no, and how soon; "" before it is measured.
func (r *report) noes() string {
	var b strings.Builder
	for _, w := range workloads() {
		for _, knows := range noesKnows() {
			for _, load := range r.loads(w, knows) {
				c := r.find(w.name, load, knows, "warden")
				fmt.Fprintf(&b, "| %s | %s | %s | %.1f %% | %.1f %% | %.0f ms | %.0f ms | %.0f ms | %s |\n", w.about,
					strings.ReplaceAll(w.loadName(load), "x", "×"),
					map[string]string{stay: "2 s", long: "30 s", jobs: "1 min, patient"}[knows], 100*c.Left, 100*c.Refused, c.Reject,
					c.Reject99, c.P99, c.entry(3))
			}
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return noesPreamble + b.String()
}

const noesPreamble = `
## Told no

Who cannot be served is to be told so, and soon (` + "`make overload OVERLOAD=-noes`" + `). A server of its own has ten seconds of load for each row; the requests of the sixth to the eighth second count, and clients
who stay for 2 s or for 30 s say nothing. Jobs stay for a minute, and the server marks their tasks as patient
([Q16](../guarantees/limiter.md)): they wait for their turn, and a no comes from a full queue or from shedding. What still waits when the load ends is answered after it, so that their goodput can be
far above 1.

| work | load | clients stay | left without an answer | told no | median no | p99 of noes | p99 of answers | goodput / critical |
|---|---|---|---|---|---|---|---|---|
`

// entry formats a measurement with so many decimals; empty if there is none.
func (c *Cell) entry(decimals int) string {
	if c == nil {
		return ""
	}
	figure := func(value float64, of func(Round) float64) string {
		text := func(v float64) string { return fmt.Sprintf("%.*f", decimals, v) }
		if c.Rounds == nil {
			return text(value)
		}
		if least, _, most := c.spread(of); text(least) != text(most) {
			return text(value) + " (" + text(least) + "–" + text(most) + ")"
		}
		return text(value)
	}
	mark := ""
	if c.Doubt != "" {
		mark = " ?"
	}
	return figure(c.Goodput, func(r Round) float64 { return r.Goodput }) + " / " + figure(c.Critical,
		func(r Round) float64 { return r.Critical }) + mark
}

// best is the best peer of a cell.
func (r *report) best(workload string, load float64, decimals int) string {
	if best := r.bestCell(workload, load); best != nil {
		return best.Variant + " " + best.entry(decimals)
	}
	return ""
}

// bestCell is the result of the best peer; nil if none was measured.
func (r *report) bestCell(workload string, load float64) *Cell {
	var best *Cell
	for _, v := range variants() {
		c := r.find(workload, load, untold, v.name)
		if v.peer && c != nil && (best == nil || c.Goodput > best.Goodput+0.01 || c.Goodput > best.Goodput-0.01 &&
			c.Critical > best.Critical) {
			best = c
		}
	}
	return best
}

// A target is a bound on a result of ours.
type target struct {
	text      string
	workloads string // separated by spaces; "": all bound workloads
	loads     []float64
	least     float64
	most      float64 // instead of least; 0: none
	knows     string  // the clients; "": untold
	value     func(r *report, c *Cell) (value float64, ok bool)
}

func targets() []target {
	const even = "cpu4 cpu4y app downstream"
	over := []float64{2, 4}
	goodput := func(_ *report, c *Cell) (float64, bool) { return c.Goodput, true }
	success := func(_ *report, c *Cell) (float64, bool) { return c.Success, true }
	return []target{
		{text: "goodput ≥ 0.97 of the ceiling", workloads: even, loads: over, least: 0.97,
			value: func(_ *report, c *Cell) (float64, bool) { return c.Goodput / c.Ceiling, true }},
		{text: "goodput ≥ 0.95 of the capacity", workloads: even, loads: over, least: 0.95, value: goodput},
		{text: "goodput ≥ 0.92, mixed", workloads: "mixed", loads: over, least: 0.92, value: goodput},
		{text: "goodput ≥ 0.90, costs of 1:30", workloads: "costs", loads: over, least: 0.90, value: goodput},
		{text: "critical at most 0.01 below the queue's", loads: over, least: -0.01, value: func(_ *report, c *Cell) (float64, bool) {
			return c.Critical - c.Queue.Critical, true
		}},
		{text: "p99 of critical at most 1.15 × the queue's: queue's / ours ≥ 0.87", loads: over, least: 1 / 1.15,
			value: func(_ *report, c *Cell) (float64, bool) {
				return c.Queue.P99Crit / c.P99Crit, c.P99Crit > 0
			}},
		{text: "p99 of critical at most 2 × the queue's", loads: over, most: 2, value: func(_ *report, c *Cell) (float64, bool) {
			return c.P99Crit / c.Queue.P99Crit, c.P99Crit > 0
		}},
		{text: "told at most 0.02 better, goodput and critical", loads: over, least: -0.02,
			value: func(r *report, c *Cell) (float64, bool) {
				if t := r.find(c.Workload, c.Load, told, c.Variant); t != nil {
					return min(c.Goodput-t.Goodput, c.Critical-t.Critical), true
				}
				return 0, false
			}},
		{text: "clients who stay for 2 s: at most 0.01 leave without an answer", loads: over, most: 0.01, knows: stay,
			value: func(_ *report, c *Cell) (float64, bool) {
				return c.Left, true
			}},
		{text: "the same: half of the noes within 0.15 s", loads: over, most: 0.15, knows: stay,
			value: func(_ *report, c *Cell) (float64, bool) {
				return c.Reject / 1000, true
			}},
		{text: "the same: 99 % of the noes within 1 s", loads: over, most: 1, knows: stay,
			value: func(_ *report, c *Cell) (float64, bool) {
				return c.Reject99 / 1000, true
			}},
		{text: "answered at 0.7× ≥ 0.99", loads: []float64{0.7}, least: 0.99, value: success},
		{text: "answered ≥ 0.99 where nothing bounds", workloads: "wait500ms wait2s wait10s", least: 0.99, value: success},
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
			for _, load := range r.loads(w, cmp.Or(t.knows, untold)) {
				if t.loads != nil && !slices.Contains(t.loads, load) {
					continue
				}
				c := r.find(w.name, load, cmp.Or(t.knows, untold), "warden")
				switch v, ok := t.value(r, c); {
				case !ok:
				case t.most > 0 && v <= t.most, t.most == 0 && v >= t.least:
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

// firstSeconds is the table of docs/evidence/first-seconds.md; "" before the first measurement.
func (r *report) firstSeconds() string {
	var b strings.Builder
	for _, w := range workloads() {
		for _, load := range r.loads(w, untold) {
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
			fmt.Fprintf(&b, "| %s | %.0f | %.2f | %s | %s | %s | %s | %s | %s / %s |\n", w.about, load*c.Capacity, min(1, 1/load),
				at(c, 0), at(c, 1), at(c, 2), at(c, 4), at(c, 9), at(peer, 0), at(peer, 4))
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return `| work | requests a second | possible | 1st second | 2nd | 3rd | 5th | 10th | failsafe-go, 1st / 5th |
|---|---|---|---|---|---|---|---|---|
` + b.String()
}

// The markers around the generated section of a page.
const sectionBegins, sectionEnds = "<!-- begin: make overload -->\n", "<!-- end: make overload -->\n"

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

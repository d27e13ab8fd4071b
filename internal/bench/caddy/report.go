// SPDX-License-Identifier: Apache-2.0

// The results: runs as JSON, and the page that is made of them.

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// cell is one run.
type cell struct {
	Service     string  `json:"service"`
	Load        float64 `json:"load"`
	Front       string  `json:"front"`
	Cold        bool    `json:"cold,omitempty"`   // one of many starts
	Reload      bool    `json:"reload,omitempty"` // in the middle
	Capacity    float64 `json:"capacity"`
	Offered     float64 `json:"offered"`
	Goodput     float64 `json:"goodput"`
	Critical    float64 `json:"critical"` // share served of those due after 5 s
	Hung        float64 `json:"hung"`
	Broken      float64 `json:"broken"`
	P50         float64 `json:"served_p50_ms"`
	P99         float64 `json:"served_p99_ms"`
	FirstNo     float64 `json:"first_no_ms"`
	NoP50       float64 `json:"no_p50_ms"`
	NoP99       float64 `json:"no_p99_ms"`
	Recovery    float64 `json:"recovery_ms"`
	Limit       float64 `json:"limit,omitempty"`
	LimitAfter  float64 `json:"limit_after,omitempty"`
	LoadAverage float64 `json:"load_average"`
	Doubt       string  `json:"doubt,omitempty"`
}

func (c *cell) name() string {
	name := fmt.Sprintf("%s/%gx/%s", c.Service, c.Load, c.Front)
	switch {
	case c.Cold:
		return "starts/" + name
	case c.Reload:
		return "reload/" + name
	}
	return name
}

// fill takes over what flood has measured.
func (c *cell) fill(r floodRun, capacity float64) {
	c.Capacity, c.Offered, c.Goodput, c.Hung, c.Broken, c.P50, c.P99 = capacity, r.Offered, r.Goodput, r.Hung, r.Broken, r.P50, r.P99
	c.FirstNo, c.NoP50, c.NoP99, c.Recovery, c.Doubt = r.FirstNo, r.NoP50, r.NoP99, r.Recovery, r.Doubt
	due, served := 0, 0
	for _, s := range r.Timeline {
		if s.At >= 5 && s.Phase == "load" {
			due += s.CriticalDue
			served += s.CriticalServed
		}
	}
	c.Critical = float64(served) / float64(max(1, due))
}

// report is the JSON.
type report struct {
	Go         string   `json:"go"`
	Processors int      `json:"processors"`
	Versions   []string `json:"versions"`
	Cells      []cell   `json:"cells"`
	Cost       *cost    `json:"cost,omitempty"`

	replaced map[string]bool
}

const page, data = "docs/evidence/caddy.md", "docs/evidence/caddy.json"

// open reads the runs of a checkout.
func open(out string) (*report, error) {
	r := &report{replaced: map[string]bool{}}
	if out == "" {
		return r, nil
	}
	text, err := os.ReadFile(filepath.Join(out, data))
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	} else if err != nil {
		return nil, err
	}
	return r, json.Unmarshal(text, r)
}

// keep adds a run; the first one of a name replaces all those before.
func (r *report) keep(c cell) {
	if name := c.name(); !r.replaced[name] {
		r.replaced[name] = true
		r.Cells = slices.DeleteFunc(r.Cells, func(old cell) bool { return old.name() == name })
	}
	r.Cells = append(r.Cells, c)
}

// of returns the runs with a name.
func (r *report) of(name string) (all []cell) {
	for _, c := range r.Cells {
		if c.name() == name {
			all = append(all, c)
		}
	}
	return all
}

// spread formats the median of the runs, with the range if they differ.
func spread(all []cell, digits int, of func(*cell) float64) string {
	if len(all) == 0 {
		return ""
	}
	v := values(all, of)
	mid := fmt.Sprintf("%.*f", digits, v[(len(v)-1)/2])
	low, high := fmt.Sprintf("%.*f", digits, v[0]), fmt.Sprintf("%.*f", digits, v[len(v)-1])
	if low == high {
		return mid
	}
	return fmt.Sprintf("%s (%s–%s)", mid, low, high)
}

func values(all []cell, of func(*cell) float64) (v []float64) {
	for i := range all {
		v = append(v, of(&all[i]))
	}
	slices.Sort(v)
	return v
}

func median(all []cell, of func(*cell) float64) float64 {
	if len(all) == 0 {
		return 0
	}
	v := values(all, of)
	return v[(len(v)-1)/2]
}

func goodput(c *cell) float64  { return c.Goodput }
func critical(c *cell) float64 { return c.Critical }

// write writes JSON and page, or prints the page.
func (r *report) write(out string) error {
	text := r.markdown()
	if out == "" {
		fmt.Print(text)
		return nil
	}
	all, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(out, data), append(all, '\n'), 0o644), //nolint:gosec // it is public
		os.WriteFile(filepath.Join(out, page), []byte(text), 0o644)) //nolint:gosec // it is public
}

// markdown is the page.
func (r *report) markdown() string {
	var b strings.Builder
	loads := values(r.Cells, func(c *cell) float64 { return c.LoadAverage })
	busy := ""
	if n := len(loads); n > 0 {
		busy = fmt.Sprintf(" The machine's load average before a run was %.1f to %.1f on %d processors, the lab's own processes included: "+
			"times are coarse if that is more than the processors.", loads[0], loads[n-1], r.Processors)
	}
	fmt.Fprintf(&b, "# In front of a service in another language\n\n`make caddy` (internal/bench/caddy) measures this page. Each run starts a service and a front before "+
		"it, and [flood](../guides/flood.md) sends it as much as it can answer, or two or four times that, from the first second on. [caddy.json](caddy.json) has all runs.\n\n"+
		"- *Clients* come at random (an open loop), one in five for `/checkout`, which is critical, and leave after %v. They tell the front nothing "+
		"about that (ours and HAProxy have the second in their configuration), and the service finishes what they have left.\n"+
		"- *Goodput* is what was served in time, of what could be: the offered, at most the capacity, which is measured without a front (PHP: behind a bare Caddy) in each round; for cold starts and reloads it is taken to be 100/s. "+
		"*Critical* is the share of critical requests served, of those due after the first five seconds.\n"+
		"- *Rounds*: every front of a service and load runs in turn, with the same arrivals; each second round has the reverse order. An entry is the median, with "+
		"the range where rounds differ.\n\n", patience)
	fmt.Fprintf(&b, "%s, %s.%s\n\n", r.Go, strings.Join(r.Versions, ", "), busy)
	r.targets(&b)
	b.WriteString("## The fronts\n\n| front | what it is |\n|---|---|\n")
	for _, f := range fronts {
		fmt.Fprintf(&b, "| %s | %s |\n", f.name, f.about)
	}
	b.WriteString("\n")
	for _, s := range services {
		for _, load := range s.loads {
			r.table(&b, s, load)
		}
	}
	r.reloads(&b)
	if c := r.Cost; c != nil {
		fmt.Fprintf(&b, "## Cost without overload\n\n%d pairs of requests, one after the other, over kept connections to a service that answers at once.\n\n"+
			"| | bare | ours | difference |\n|---|---|---|---|\n| p50 | %.3f ms | %.3f ms | %+.3f ms |\n| p99 | %.3f ms | %.3f ms | %+.3f ms |\n"+
			"\nThe median difference of a pair is %+.3f ms.\n", c.Requests, c.BareP50, c.OursP50, c.OursP50-c.BareP50, c.BareP99, c.OursP99,
			c.OursP99-c.BareP99, c.MedianPair)
	}
	b.WriteString("\n## Not measured\n\nMachines of their own for clients, front and service; TLS; HTTP/2 and HTTP/3 to the front; several fronts of one service; more than " +
		"two processors; services whose calls differ by more than the queries here.\n")
	return b.String()
}

// targets compares with what was promised.
func (r *report) targets(b *strings.Builder) {
	b.WriteString("## Targets\n\n| target | measured | met |\n|---|---|---|\n")
	row := func(target, measured string, met bool) {
		says := "no"
		if met {
			says = "yes"
		}
		if measured == "" {
			measured, says = "not measured", ""
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", target, measured, says)
	}
	four := r.of("gunicorn/4x/ours")
	row("4 workers, 4×, from cold: goodput ≥ 0.95", spread(four, 3, goodput), median(four, goodput) >= .95)
	row("the same: critical ≥ 0.99 after 5 s", spread(four, 3, critical), median(four, critical) >= .99)
	best := max(median(r.of("hung/2x/constant 4"), goodput), median(r.of("hung/2x/constant 6"), goodput))
	hung := r.of("hung/2x/ours")
	measured := ""
	if len(hung) > 0 && best > 0 {
		measured = fmt.Sprintf("%.2f of it", median(hung, goodput)/best)
	}
	row("a worker that hangs, 2×: goodput ≥ 0.9 of the best constant's", measured, median(hung, goodput) >= .9*best)
	starts := r.of("starts/gunicorn/2x/ours")
	constant := max(median(r.of("gunicorn/2x/constant 4"), goodput), median(r.of("gunicorn/2x/constant 6"), goodput))
	good := 0
	for _, c := range starts {
		if c.Goodput >= .9*constant {
			good++
		}
	}
	measured = ""
	if len(starts) > 0 && constant > 0 {
		measured = fmt.Sprintf("%d of %d", good, len(starts))
	}
	row("abandoned work goes on, 2×: ≥ 0.9 of the best constant's in 20 of 20 cold starts", measured, len(starts) >= 20 && good == len(starts))
	measured, met := "", false
	if c := r.Cost; c != nil {
		measured = fmt.Sprintf("%+.3f and %+.3f ms", c.OursP50-c.BareP50, c.OursP99-c.BareP99)
		met = c.OursP50-c.BareP50 <= .1 && c.OursP99-c.BareP99 <= .3
	}
	row("cost without overload: p50 + ≤ 0.1 ms, p99 + ≤ 0.3 ms", measured, met)
	reloads := r.of("reload/gunicorn/4x/ours")
	measured = ""
	if len(reloads) > 0 {
		measured = fmt.Sprintf("broken connections %s; the limit was %s and then %s", spread(reloads, 4, broken),
			spread(reloads, 0, func(c *cell) float64 { return c.Limit }), spread(reloads, 0, func(c *cell) float64 { return c.LimitAfter }))
	}
	kept := len(reloads) > 0
	for _, c := range reloads {
		kept = kept && c.LimitAfter >= c.Limit/2 && c.LimitAfter <= 2*c.Limit && c.Broken == 0
	}
	row("a reload in the middle of 4×: no request lost, limit kept", measured, kept)
	b.WriteString("\n")
}

// table is that of one service and load.
func (r *report) table(b *strings.Builder, s service, load float64) {
	var rows strings.Builder
	for _, f := range fronts {
		all := r.of(fmt.Sprintf("%s/%gx/%s", s.name, load, f.name))
		if len(all) == 0 {
			continue
		}
		times := func(of func(*cell) float64, none string) string {
			if v := median(all, of); v >= 0 {
				return fmt.Sprintf("%.0f", v)
			}
			return none
		}
		name := f.name
		if name == "ours" {
			name = "**ours**"
		}
		fmt.Fprintf(&rows, "| %s | %s | %s | %s | %s | %s / %s | %s / %s | %s |\n", name, spread(all, 3, goodput), spread(all, 3, critical),
			spread(all, 3, func(c *cell) float64 { return c.Hung }), times(func(c *cell) float64 { return c.FirstNo }, "none"),
			times(func(c *cell) float64 { return c.NoP50 }, ""), times(func(c *cell) float64 { return c.NoP99 }, ""),
			times(func(c *cell) float64 { return c.P50 }, ""), times(func(c *cell) float64 { return c.P99 }, ""),
			times(func(c *cell) float64 { return c.Recovery }, "not in 8 s"))
	}
	if rows.Len() == 0 {
		return
	}
	first := slices.IndexFunc(r.Cells, func(c cell) bool { return c.Service == s.name && c.Load == load && !c.Cold && !c.Reload })
	fmt.Fprintf(b, "## %s: %g×\n\nCapacity %.0f/s in the first round.\n\n"+
		"| front | goodput | critical | hung | first no, ms | a no, p50 / p99, ms | served, p50 / p99, ms | recovery, ms |\n|---|---|---|---|---|---|---|---|\n%s\n",
		s.about, load, r.Cells[first].Capacity, rows.String())
}

func broken(c *cell) float64 { return c.Broken }

// reloads shows what a reload in the middle of an overload costs.
func (r *report) reloads(b *strings.Builder) {
	if len(r.of("reload/gunicorn/4x/ours")) == 0 {
		return
	}
	b.WriteString("## A reload in the middle of 4×\n\nA client is *broken* if its connection was refused or reset before it had an answer. What a bare Caddy " +
		"breaks by itself is beside ours.\n\n" +
		"| front | goodput | critical | hung | broken | limit before | limit after |\n|---|---|---|---|---|---|---|\n")
	for _, f := range []string{"bare", "ours"} {
		all := r.of("reload/gunicorn/4x/" + f)
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s |\n", f, spread(all, 3, goodput), spread(all, 3, critical),
			spread(all, 3, func(c *cell) float64 { return c.Hung }), spread(all, 4, broken), spread(all, 0, func(c *cell) float64 { return c.Limit }),
			spread(all, 0, func(c *cell) float64 { return c.LimitAfter }))
	}
	b.WriteString("\n")
}

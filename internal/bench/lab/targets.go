// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The targets: what was promised, in how many cells it was kept, and where it was not.

package main

import (
	"fmt"
	"slices"
	"strings"
)

// A target is a bound on results of ours.
type target struct {
	lab, text   string
	of          func(c *Cell) bool
	least, most float64                                       // most 0: none
	value       func(r *report, c *Cell) (v float64, ok bool) // not ok: not measured
}

func targets() []target {
	over := func(kind string, works ...string) func(c *Cell) bool {
		return func(c *Cell) bool {
			return c.Kind == kind && (c.Load == 2 || c.Load == 4) && (works == nil || slices.Contains(works, c.Workload))
		}
	}
	in := func(prefixes ...string) func(c *Cell) bool {
		return func(c *Cell) bool {
			return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(cellName(c.Workload, c.Load, c.Kind, c.Way), p) })
		}
	}
	figure := func(of func(c *Cell) float64) func(r *report, c *Cell) (float64, bool) {
		return func(_ *report, c *Cell) (float64, bool) { return of(c), true }
	}
	even := over(untold, "cpu4", "cpu4y", "app", "downstream")
	goodput := figure(func(c *Cell) float64 { return c.Goodput })
	return []target{
		{"overload", "goodput ≥ 0.97 of the ceiling", even, 0.97, 0, figure(func(c *Cell) float64 { return c.Goodput / c.Ceiling })},
		{"overload", "goodput ≥ 0.95 of the capacity", even, 0.95, 0, goodput},
		{"overload", "goodput ≥ 0.92, mixed", over(untold, "mixed"), 0.92, 0, goodput},
		{"overload", "goodput ≥ 0.90, costs of 1:30", over(untold, "costs"), 0.90, 0, goodput},
		{"overload", "critical at most 0.01 below the queue's", over(untold), -0.01, 0, figure(func(c *Cell) float64 { return c.Critical - c.Queue.Critical })},
		{"overload", "p99 of critical at most 1.15 × the queue's", over(untold), 0, 1.15, ofQueue},
		{"overload", "p99 of critical at most 2 × the queue's", over(untold), 0, 2, ofQueue},
		{"overload", "told at most 0.02 better, goodput and critical", over(untold), -0.02, 0, ofTold},
		{"overload", "clients who stay for 2 s: at most 0.01 leave without an answer", over(stay), 0, 0.01, figure(func(c *Cell) float64 { return c.Left })},
		{"overload", "the same: half of the noes within 150 ms", over(stay), 0, 150, figure(func(c *Cell) float64 { return c.Reject })},
		{"overload", "the same: 99 % of the noes within 1,000 ms", over(stay), 0, 1000, figure(func(c *Cell) float64 { return c.Reject99 })},
		{"overload", "answered ≥ 0.99 where nothing bounds", in("wait"), 0.99, 0, figure(func(c *Cell) float64 { return c.Success })},

		{"container", "no kills", in("flat/", "tree/"), 0, 0.001, figure((*Cell).killed)},
		{"container", "healthy: no sample lowers the limit for memory", func(c *Cell) bool { return c.Load == 1 && !in("beside/", "resized")(c) }, 0, 0.5,
			figure(func(c *Cell) float64 { return float64(c.Inside.Memory) })},
		{"container", "flat memory: goodput ≥ 0.8 of the best constant's", in("flat/"), 0.8, 0, ofConstant},
		{"container", "trees: goodput ≥ 0.6 of the best constant's", in("tree/"), 0.6, 0, ofConstant},
		{"container", "beside neighbours: goodput ≥ 0.95 of the best constant's", in("beside/"), 0.95, 0, ofConstant},
		{"container", "one core of two goes: goodput ≥ 0.95 of the best constant's", in("resized"), 0.95, 0, ofConstant},
		{"container", "beside neighbours: `starved` in 95 % of the samples", in("beside/"), 0.95, 0,
			figure(func(c *Cell) float64 { return float64(c.Inside.Starved) / float64(max(1, c.Inside.Samples)) })},

		{"caddy", "4 workers, 4×, from cold: goodput ≥ 0.95", in("gunicorn/4x/cold"), 0.95, 0, goodput},
		{"caddy", "the same: critical ≥ 0.99 after 5 s", in("gunicorn/4x/cold"), 0.99, 0, figure(func(c *Cell) float64 { return c.Critical })},
		{"caddy", "a worker that hangs, 2×: goodput ≥ 0.9 of the best constant's", in("hung/2x"), 0.9, 0, ofFixed},
		{"caddy", "without overload: p50 + at most 0.1 ms", in("idle"), 0, 0.1, added(func(c *Cell) float64 { return c.P50 })},
		{"caddy", "without overload: p99 + at most 0.3 ms", in("idle"), 0, 0.3, added(func(c *Cell) float64 { return c.P99 })},
	}
}

// ofTold is how much more is done, or served of the critical, where the server is told.
func ofTold(r *report, c *Cell) (float64, bool) {
	t := r.find(c.Workload, c.Load, told, c.Way)
	if t == nil {
		return 0, false
	}
	return min(c.Goodput-t.Goodput, c.Critical-t.Critical), true
}

// ofConstant is the share of the best constant's.
func ofConstant(r *report, c *Cell) (float64, bool) {
	kind := c.Kind
	if kind == cgroup {
		kind = goLimit
	}
	best := r.constant(c.Workload, c.Load, kind)
	if best == nil || best.Goodput == 0 {
		return 0, false
	}
	return c.Goodput / best.Goodput, true
}

// ofFixed is the share of the better of a front's fixed limits.
func ofFixed(r *report, c *Cell) (float64, bool) {
	four, six := r.find(c.Workload, c.Load, "cold", "constant 4"), r.find(c.Workload, c.Load, "cold", "constant 6")
	if four == nil || six == nil {
		return 0, false
	}
	return c.Goodput / max(four.Goodput, six.Goodput), true
}

// added is what ours takes longer than a bare front.
func added(time func(*Cell) float64) func(r *report, c *Cell) (float64, bool) {
	return func(r *report, c *Cell) (float64, bool) {
		bare := r.find(c.Workload, c.Load, c.Kind, "bare")
		if bare == nil {
			return 0, false
		}
		return time(c) - time(bare), true
	}
}

func ofQueue(_ *report, c *Cell) (float64, bool) {
	return c.P99Crit / c.Queue.P99Crit, c.P99Crit > 0
}

// kept says of each target of an experiment in how many cells it was met, and which missed it.
func (r *report) kept(lab string) string {
	var b strings.Builder
	for _, t := range targets() {
		met, missed, last := 0, []string{}, 0.0
		for i := range r.Cells {
			c := &r.Cells[i]
			if t.lab != lab || c.Lab != lab || c.Way != "warden" && c.Way != "ours" || !t.of(c) {
				continue
			}
			v, ok := t.value(r, c)
			if !ok {
				continue
			}
			switch last = v; {
			case t.most > 0 && v <= t.most, t.most == 0 && v >= t.least:
				met++
			default:
				missed = append(missed, fmt.Sprintf("%s %g× %.3g", c.Workload, c.Load, v))
			}
		}
		if met+len(missed) == 0 { // of what was measured
			continue
		}
		fmt.Fprintf(&b, "- %s: %d of %d", t.text, met, met+len(missed))
		switch {
		case len(missed) > 0:
			fmt.Fprintf(&b, "; missed by %s", strings.Join(missed, ", "))
		case met == 1:
			fmt.Fprintf(&b, ", %.3g", last)
		}
		b.WriteString("\n")
	}
	return b.String()
}

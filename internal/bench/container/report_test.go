// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The report counts what was promised and what was not kept.

package main

import (
	"strings"
	"testing"
)

// The best constant is that with the most goodput of those that lived within the limit, and each target counts the runs or cells
// that kept it.
func TestTargets(t *testing.T) {
	e := &evidence{Costs: []cost{{Threads: 20, Worst: 100, MostAtOne: 1}, {Threads: 2000, Worst: 300, MostAtOne: 9}}}
	const overloaded, calm, beside = "memory/flat/20/4x", "memory/flat/20/1x", "neighbour/waiting"
	for round, good := range []float64{4, 5, 3} {
		r := run{Cell: overloaded, Mode: "ours", Round: round, Good: good}
		if round == 2 {
			r.Killed = 5
		}
		e.put(r)
	}
	e.put(run{Cell: overloaded, Mode: "7", Good: 4.5})
	e.put(run{Cell: overloaded, Mode: "9", Good: 5.5})
	e.put(run{Cell: overloaded, Mode: "11", Good: 8, Killed: 3})
	e.put(run{Cell: overloaded, Mode: "12", Good: 7, Server: report{LiveMB: 257}})
	e.put(run{Cell: calm, Mode: "ours", Server: report{Samples: 100, Codes: map[string]int{"memory/tighten": 2}}})
	e.put(run{Cell: beside, Mode: "ours", Good: 190, Server: report{Samples: 100, Codes: map[string]int{"starved": 96}}})
	e.put(run{Cell: beside, Mode: "32", Good: 199})

	for _, c := range cells(1, 1) {
		if n, good := e.best(&c); c.name == overloaded && (n != 9 || good != 5.5) {
			t.Errorf("the best constant is %d with %g; want 9 with 5.5", n, good)
		}
	}
	text := e.document()
	for _, want := range []string{
		"| memory: no kills, in runs | 4 | 3 | memory/flat/20/4x round 3 |",
		"| memory, flat: goodput ≥ 0.8 of the best constant's, in cells | 1 | 0 | memory/flat/20/4x: 0.73 |",
		"in runs | 1 | 0 | memory/flat/20/1x round 1: 2 |",
		"| neighbour: `starved` in 95 % of the samples, in runs | 1 | 1 |  |",
		"| neighbour: goodput ≥ 0.95 of the best constant's, in cells | 1 | 1 |  |",
		"| sample: at most 200 µs, by the number of threads | 2 | 1 | 2000: 300 µs |",
		"| sample: no allocation that grows with the threads | 2 | 1 | 2000: 9 |",
		"**4.0 (3.0–5.0)** | 0.73 (0.55–0.91)", "1 of 3: 5.0 s",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}

// A run replaces the earlier one of its cell, mode and round.
func TestPut(t *testing.T) {
	e := &evidence{}
	e.put(run{Cell: "a", Mode: "ours", Good: 1})
	e.put(run{Cell: "a", Mode: "ours", Round: 1, Good: 2})
	e.put(run{Cell: "a", Mode: "ours", Good: 3})
	if all := e.of("a", "ours"); len(all) != 2 || all[0].Good+all[1].Good != 5 {
		t.Errorf("%+v; want the runs with 2 and 3", all)
	}
}

// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The pages: which rows they have, what they say of cells that were not measured, and that the repository's are of its cells.

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func cellWith(load float64, kind, way string, goodputs ...float64) Cell {
	var runs []Cell
	for _, goodput := range goodputs {
		runs = append(runs, Cell{
			Lab: "overload", Workload: "cpu4", Load: load, Kind: kind, Way: way, Goodput: goodput, Ceiling: 1, Capacity: 50,
			tally: tally{Critical: 1, P99Crit: 10}, Queue: &tally{Critical: 1, P99Crit: 9},
		})
	}
	return median(runs)
}

// What is measured again replaces its first measurement, only another library can be the best peer, and nothing is said of what was not
// measured. What else the pages say TestPagesAreOfThisReport holds.
func TestReport(t *testing.T) {
	r := &report{}
	for _, c := range []Cell{
		cellWith(2, untold, "warden", 0.5), cellWith(2, untold, "warden", 0.9, 0.97, 0.953), // measured again
		cellWith(4, untold, "warden", 0.9), cellWith(2, untold, "none", 0.99),
		cellWith(2, untold, "failsafe", 0.001, 0.002), cellWith(2, untold, "gradient2", 0.96), cellWith(4, untold, "failsafe", 0.5),
	} {
		r.put(c)
	}
	all := r.summary() + r.overload()
	for _, text := range []string{
		"| 4 ms of computing in one piece | **0.95 (0.90–0.97) / 1.00** | gradient2 0.96 / 1.00 | **0.90 / 1.00** | failsafe 0.50 / 1.00 |\n",
		"in 1 of these 2 cells, by at most 0.007, and answers at most 1.00 of",
		"| 2× | 1.00 | **0.95 (0.90–0.97) / 1.00** | 10 ms (9) |  |  |  | gradient2 0.96 / 1.00 |\n",
		"- goodput ≥ 0.95 of the capacity: 1 of 2; missed by cpu4 4× 0.9\n",
	} {
		if !strings.Contains(all, text) {
			t.Errorf("no %q in\n%s", text, all)
		}
	}
	if strings.Contains(all, "where nothing bounds") {
		t.Errorf("what was not measured in\n%s", all)
	}
}

// The best constant is that with the most goodput of those that lived within the limit.
func TestConstant(t *testing.T) {
	r := &report{}
	for _, c := range []Cell{
		{Way: "constant 7", Goodput: 4.5}, {Way: "constant 9", Goodput: 5.5}, {Way: "warden", Goodput: 4, Inside: &inside{}},
		{Way: "constant 11", Goodput: 8, Inside: &inside{Killed: 3}}, {Way: "constant 12", Goodput: 7, Inside: &inside{LiveMB: 257}},
	} {
		c.Lab, c.Workload, c.Load, c.Kind = "container", "flat/20/2s", 4, goLimit
		r.put(c)
	}
	text := r.container()
	for _, want := range []string{"| 5.5 (9) | **4.0: 0.73** |", "- no kills: 1 of 1", "0 of 1; missed by flat/20/2s 4× 0.727"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// What the repository shows was made of the cells that it has, by this program; a page without a section or without numbers stays.
func TestPagesAreOfThisReport(t *testing.T) {
	const root = "../../.."
	r, err := open(root)
	if err != nil || len(r.Cells) == 0 {
		t.Fatalf("%d cells, %v", len(r.Cells), err)
	}
	pages, err := r.pages(root)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range pages {
		if got, err := os.ReadFile(filepath.Join(root, file)); err != nil || string(got) != want {
			t.Errorf("%s is not what the cells say (make lab LAB='overload -render'): %v", file, err)
		}
		if strings.HasSuffix(file, ".md") && !strings.Contains(want, sectionBegins) {
			t.Errorf("%s has no section", file)
		}
	}
	const page = "before\n" + sectionBegins + "old\n" + sectionEnds + "after\n"
	if got := insert(page, "new\n"); got != "before\n"+sectionBegins+"new\n"+sectionEnds+"after\n" || insert(page, "") != page || insert("x", "new") != "x" {
		t.Error(got)
	}
}

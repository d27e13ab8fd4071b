// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The pages: which constant they compare with, and that the repository's are of its cells.

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is measured again replaces its first measurement, and the best constant is that with the most goodput of those that lived within the
// limit. What else the pages say TestPagesAreOfThisReport holds.
func TestBestConstant(t *testing.T) {
	r := &report{}
	for way, c := range map[string]Cell{
		"constant 7": {Goodput: 4.5}, "constant 9": {Goodput: 5.5}, "warden": {Goodput: 6, Inside: &inside{}},
		"constant 11": {Goodput: 8, Inside: &inside{Killed: 3}}, "constant 12": {Goodput: 7, Inside: &inside{LiveMB: 257}},
	} {
		c.Workload, c.Load, c.Kind, c.Way = "flat/20/2s", 4, goLimit, way
		r.put(Cell{Workload: c.Workload, Load: 4, Kind: goLimit, Way: way, Goodput: 10})
		r.put(c)
	}
	if best := r.constant("flat/20/2s", 4, goLimit); best.Way != "constant 9" || best.Goodput != 5.5 || len(r.Cells) != 5 {
		t.Errorf("%+v of %d", best, len(r.Cells))
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

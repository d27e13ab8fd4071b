// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The report: which rows it has, and what it says of cells that were not measured.

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func cellWith(workload string, load float64, knows, variant string, goodput float64) Cell {
	return Cell{
		Workload: workload, Load: load, Knows: knows, Variant: variant, Goodput: goodput, Ceiling: 1, Offered: 100, Capacity: 50,
		tally: tally{Critical: 1, Success: goodput, P99Crit: 10}, Queue: &tally{Critical: 1, P99Crit: 9},
		Seconds: []float64{0.25, 0.5, 0.75},
	}
}

// The table says what was measured, and nothing of what was not.
func TestReport(t *testing.T) {
	r := &report{Go: "go"}
	r.put(cellWith("cpu4", 4, untold, "warden", 0.9))
	r.put(cellWith("cpu4", 2, untold, "warden", 0.5))
	r.put(cellWith("cpu4", 2, untold, "warden", 0.96)) // measured again
	r.put(cellWith("cpu4", 2, told, "warden", 0.975))
	r.put(cellWith("cpu4", 2, untold, "none", 0.1))
	r.put(cellWith("cpu4", 2, untold, "failsafe", 0.7))
	r.put(cellWith("app", 2, told, "warden", 0.9)) // untold is not there: no row
	doubted := cellWith("cpu4", 2, post, "warden", 0.3)
	doubted.Doubt = "late"
	r.put(doubted)
	if len(r.Cells) != 7 {
		t.Fatalf("%d cells", len(r.Cells))
	}
	rows := strings.Split(strings.TrimSpace(r.headline()), "\n")[2:]
	want := []string{
		"| 4 ms of computing in one piece | 2× | 1.00 | **0.960 / 1.000** | 10 ms (9) | 0.975 / 1.000 | 0.300 / 1.000 ? |  | failsafe 0.700 / 1.000 |",
		"| 4 ms of computing in one piece | 4× | 1.00 | **0.900 / 1.000** | 10 ms (9) |  |  |  |  |",
	}
	if strings.Join(rows, "\n") != strings.Join(want, "\n") {
		t.Errorf("rows:\n%s\nwant:\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
	targets := r.targets()
	for _, row := range []string{
		"| goodput ≥ 0.97 of the ceiling | 2 | 0 | cpu4 2x: 0.960; cpu4 4x: 0.900 |",
		"| goodput ≥ 0.95 of the capacity | 2 | 1 | cpu4 4x: 0.900 |",
		"| told at most 0.02 better, goodput and critical | 1 | 1 |  |",
		"| p99 of critical at most 1.15 × the queue's: queue's / ours ≥ 0.87 | 2 | 2 |  |",
	} {
		if !strings.Contains(targets, row) {
			t.Errorf("no %q in\n%s", row, targets)
		}
	}
	if r.noes() != "" {
		t.Errorf("noes that nobody measured: %s", r.noes())
	}
	for i, knows := range []string{stay, jobs} {
		c := cellWith("cpu4", 2, knows, "warden", 0.9)
		c.Left, c.Refused, c.Reject, c.Reject99, c.P99 = 0.02*float64(1-i), 0.5, 140, 1200, 40
		r.put(c)
	}
	if text := r.noes(); !strings.Contains(text, "| 4 ms of computing in one piece | 2× | 2 s | 2.0 % | 50.0 % | 140 ms | 1200 ms | 40 ms | 0.900 / 1.000 |\n") ||
		!strings.Contains(text, "| 2× | 1 min, patient | 0.0 % |") {
		t.Errorf("noes:\n%s", text)
	}
	targets = r.targets()
	for _, row := range []string{
		"at most 0.01 leave without an answer | 1 | 0 | cpu4 2x: 0.020 |", "half of the noes within 0.15 s | 1 | 1 |  |",
		"99 % of the noes within 1 s | 1 | 0 | cpu4 2x: 1.200 |", "| p99 of critical at most 2 × the queue's | 2 | 2 |  |",
	} {
		if !strings.Contains(targets, row) {
			t.Errorf("no %q in\n%s", row, targets)
		}
	}
	if strings.Contains(targets, "where nothing bounds") {
		t.Errorf("a target of no cell in\n%s", targets)
	}
}

// A cell of several rounds shows its range where there is one, and only another library can be the best peer.
func TestRange(t *testing.T) {
	r := &report{}
	rounds := func(variant string, goodputs ...float64) {
		var runs []Cell
		for _, goodput := range goodputs {
			runs = append(runs, cellWith("cpu4", 2, untold, variant, goodput))
		}
		c := median(runs)
		r.put(c)
		c.Load = 4
		r.put(c)
	}
	rounds("warden", 0.9, 0.97, 0.953)
	rounds("failsafe", 0.001, 0.002)
	rounds("gradient2", 0.5)
	rounds("static", 0.99)
	rounds("warden-pool", 0.99)
	want := "| 4 ms of computing in one piece | **0.95 (0.90–0.97) / 1.00** | gradient2 0.50 / 1.00 | **0.95 (0.90–0.97) / 1.00** | gradient2 0.50 / 1.00 |\n"
	if got := r.summary(); !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	rounds("gradient2", 0.96)
	if got, want := r.losses(), "in 2 of these 2 cells, by at most 0.007, and answers at most 1.00 of"; !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := r.find("cpu4", 2, untold, "failsafe").entry(2), "0.00 / 1.00"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Cells of earlier runs stay until they are measured again, and pages have one section each, between their markers.
func TestReportIsKept(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "docs", "evidence", "first-seconds.md")
	if err := os.MkdirAll(filepath.Dir(page), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(page, []byte("# P\n\nmany\n\n"+sectionBegins+sectionEnds+"\nslowly\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, load := range []float64{0.7, 2, 2} {
		r, err := open(dir)
		if err != nil {
			t.Fatal(err)
		}
		r.put(cellWith("cpu4", load, untold, "warden", 0.1*float64(i)))
		if err := r.write(dir); err != nil {
			t.Fatal(err)
		}
	}
	r, err := open(dir)
	if err != nil || len(r.Cells) != 2 || r.find("cpu4", 2, untold, "warden").Goodput != 0.2 || r.Cells[1].Queue.P99Crit != 9 ||
		r.Cells[1].Critical != 1 {
		t.Fatalf("%+v, %v", r.Cells, err)
	}
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	row := "| 4 ms of computing in one piece | 100 | 0.50 | 0.25 | 0.50 | 0.75 |  |  |  /  |"
	if strings.Count(text, row) != 1 || !strings.HasPrefix(text, "# P\n\nmany\n\n"+sectionBegins) ||
		!strings.HasSuffix(text, sectionEnds+"\nslowly\n") {
		t.Errorf("%s", text)
	}
	if got := insert(text, ""); got != text {
		t.Errorf("without numbers: %q", got)
	}
	if got := insert("no place for it", "section"); got != "no place for it" {
		t.Errorf("%q", got)
	}
}

// TestPagesAreOfThisReport: what the repository shows was made of the cells that it has, by this program.
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
		got, err := os.ReadFile(filepath.Join(root, file))
		shown, _, _ := strings.Cut(string(got), "\n## Runs\n")
		if err != nil || shown != want {
			t.Errorf("%s is not what this report says (make overload OVERLOAD=-render): %v", file, err)
		}
	}
	if page := pages["README.md"]; !strings.Contains(page, sectionBegins) {
		t.Error("the README has no section of it")
	}
}

// The plot has a row for each work that was measured at 4× of ours and of a peer, and for no other.
func TestPlot(t *testing.T) {
	r := &report{}
	r.put(cellWith("cpu4", 4, untold, "warden", 0.9))
	r.put(cellWith("cpu4", 4, untold, "failsafe", 0.5))
	r.put(cellWith("app", 4, untold, "warden", 0.9)) // no peer
	r.put(cellWith("mixed", 2, untold, "warden", 0.9))
	r.put(cellWith("mixed", 2, untold, "failsafe", 0.9))
	plot := r.plot()
	if n := strings.Count(plot, `text-anchor="end"`); n != 1 || !strings.Contains(plot, "4 ms of computing in one piece") {
		t.Errorf("%d rows:\n%s", n, plot)
	}
	for _, want := range []string{`class="ours" cx="607.0"`, `class="peer" cx="515.0"`} { // 0.9 and 0.5 of 230, from 400
		if !strings.Contains(plot, want) {
			t.Errorf("no %s in\n%s", want, plot)
		}
	}
}

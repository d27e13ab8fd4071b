// SPDX-License-Identifier: Apache-2.0

// The report: a table with a line for each row, met and missed targets alike, in a page that is otherwise written by hand.

package main

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
)

// The markers around the table.
const tableBegins, tableEnds = "<!-- begin: make bench -->\n", "<!-- end: make bench -->\n"

const tableHead = "| what | ours | beside it: ours / it (95 %), target |\n|---|---|---|\n"

// insert returns the page with the lines of these results in the place of earlier ones, or at the end.
func insert(page string, results []result) (string, error) {
	before, rest, found := strings.Cut(page, tableBegins)
	table, after, closed := strings.Cut(rest, tableEnds)
	if !found || !closed {
		return page, fmt.Errorf("the page has no %s", strings.TrimSpace(tableBegins))
	}
	table, _, _ = strings.Cut(strings.TrimPrefix(table, tableHead), "\nPeers: ")
	lines := strings.FieldsFunc(table, func(c rune) bool { return c == '\n' })
	for _, r := range results {
		now := r.line()
		title := now[:strings.Index(now[1:], "|")+2]
		if i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, title) }); i >= 0 {
			lines[i] = now
		} else {
			lines = append(lines, now)
		}
	}
	return before + tableBegins + tableHead + strings.Join(lines, "\n") + "\n\nPeers: " + strings.Join(versions(), ", ") + ".\n" + tableEnds + after, nil
}

// line is that of a row.
func (r result) line() string {
	how := fmt.Sprintf(" (%d)", r.goroutines)
	if r.whole != nil { // the title names the parallelism
		how = ""
	}
	var beside []string
	for _, c := range r.cells[1:] {
		text := fmt.Sprintf("%s %s: %s (%s–%s)", c.name, c, number(c.ratio), number(c.low), number(c.high))
		if c.most > 0 {
			missed := map[bool]string{true: "**missed** "}[c.ratio > c.most]
			text += fmt.Sprintf(", %s≤ %s", missed, number(c.most))
		}
		beside = append(beside, text)
	}
	if r.note != nil {
		beside = append(beside, r.note())
	}
	return fmt.Sprintf("| %s: %s%s | %s | %s |", r.layer, r.title, how, r.cells[0], strings.Join(beside, "; "))
}

// String is a time, and the allocations if there are any.
func (c cell) String() string {
	v, unit, decimals := c.ns, "ns", 1
	switch {
	case v >= 1e6:
		v, unit, decimals = v/1e6, "ms", 2
	case v >= 1e3:
		v, unit, decimals = v/1e3, "µs", 2
	}
	if v >= 100 {
		decimals = 0
	}
	text := fmt.Sprintf("%.*f %s", decimals, v, unit)
	if c.allocs >= 0.5 {
		text += fmt.Sprintf(", %.0f allocs", c.allocs)
	}
	return text
}

// number formats two digits after the point, or two significant digits if it is small.
func number(v float64) string {
	switch {
	case v < 0.0005:
		return "0"
	case v < 0.1:
		return fmt.Sprintf("%.3f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// peers are the modules that the page has the versions of.
var peers = []string{
	"github.com/failsafe-go/failsafe-go", "golang.org/x/sync", "github.com/jackc/pgx/v5", "github.com/nats-io/nats.go",
	"github.com/nats-io/nats-server/v2", "github.com/riverqueue/river",
}

// versions lists the peers in this binary with their versions.
func versions() (all []string) {
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if slices.Contains(peers, m.Path) {
			all = append(all, m.Path+" "+m.Version)
		}
	}
	return all
}

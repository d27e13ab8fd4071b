// SPDX-License-Identifier: Apache-2.0

// The results, for the terminal and for docs/evidence.
package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// show prints the results of the chosen faults, and returns how many were missed.
func show(out io.Writer, chosen []fault, results map[string]result) (missed int) {
	for _, f := range chosen {
		r, played := results[f.name]
		if !played {
			fmt.Fprintf(out, "%-14s not played\n", f.name)
			continue
		}
		verdict := "right"
		if !r.Right {
			verdict = "MISS"
			missed++
		}
		fmt.Fprintf(out, "%-14s %-5s %5.1f min  %s; alerts: %s", f.name, verdict, r.Minutes, r.said(), cmp.Or(strings.Join(r.Alerts, ", "), "none"))
		if len(r.False) > 0 {
			fmt.Fprintf(out, "; false alarms: %s", strings.Join(r.False, ", "))
		}
		fmt.Fprintln(out)
	}
	return missed
}

// said is what the runbook has said.
func (r *result) said() string {
	if r.Named == nil {
		return "nothing named"
	}
	return r.Named.Name + r.Named.Labels.short() + ", from " + r.Named.From
}

// row is the page's row of some faults: what the last game of each has shown. What else there is to say goes into notes.
func row(of string, faults []fault, results map[string]result, notes *strings.Builder) string {
	var named, called []float64 // minutes
	all, pages := 0, 0
	for _, f := range faults {
		r, played := results[f.name]
		switch {
		case !played:
			fmt.Fprintf(notes, "- `%s` was not played: %s\n", f.name, f.about)
		case !r.Right:
			fmt.Fprintf(notes, "- `%s` was **missed**: %s; said was %s\n", f.name, f.about, r.said())
		case !f.calm:
			named = append(named, r.Minutes)
		}
		if !f.calm {
			all++
			if r.First != "" {
				called = append(called, r.Alerted)
			}
		}
		pages += len(r.pages())
	}
	return fmt.Sprintf("| %s | %d of %d | %s | %d | %s | %d |\n", of, len(named), all, median(named), len(called), median(called), pages)
}

// median is that of minutes.
func median(minutes []float64) string {
	slices.Sort(minutes)
	n := len(minutes)
	if n == 0 {
		return "none"
	}
	return fmt.Sprintf("%.1f minutes", (minutes[n/2]+minutes[(n-1)/2])/2)
}

// report is the table of docs/evidence/faults.md, and what else there is to say of the games.
func report(results map[string]result) string {
	var notes strings.Builder
	table := row("the catalogue's", append(catalogue(), healthFor(time.Hour)), results, &notes) +
		row("that nobody had seen", heldout(), results, &notes)
	health := "not played"
	if r, played := results["health"]; played {
		health = fmt.Sprintf("%.0f minutes, with a rolling restart of both programs: %d pages, %d other alarms or names", r.Minutes+r.Healthy,
			len(r.pages()), len(r.False)-len(r.pages()))
	}
	commits := map[string]bool{}
	for _, r := range results {
		commits[r.Commit] = true
	}
	return fmt.Sprintf(`| faults | named rightly | after, median | an alert fired | after, median | pages in health |
|---|---|---|---|---|---|
%s
%s- Health: %s.
- The last games are from the commits %s.
`, table, notes.String(), health, strings.Join(slices.Sorted(maps.Keys(commits)), ", "))
}

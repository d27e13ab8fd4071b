// The results, for the terminal and for docs/evidence.
package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// print prints the results of the chosen faults, and returns how many were missed.
func print(out io.Writer, chosen []fault, results map[string]result) (missed int) {
	for _, f := range chosen {
		r, played := results[f.name]
		if !played {
			fmt.Fprintf(out, "%-14s not played\n", f.name)
			continue
		}
		if !r.Right {
			missed++
		}
		fmt.Fprintf(out, "%-14s %-5s %5.1f min  %s; alerts: %s", f.name, verdict(r), r.Minutes, r.said(), r.alerts())
		if len(r.False) > 0 {
			fmt.Fprintf(out, "; false alarms: %s", strings.Join(r.False, ", "))
		}
		fmt.Fprintln(out)
	}
	return missed
}

func verdict(r result) string {
	if r.Right {
		return "right"
	}
	return "MISS"
}

// said is what the runbook has said.
func (r *result) said() string {
	if r.Named == nil {
		return "nothing named"
	}
	return r.Named.Name + r.Named.Labels.short() + ", from " + r.Named.From
}

// alerts are the names of the alerts, each once.
func (r *result) alerts() string {
	names := map[string]bool{}
	for _, text := range r.Alerts {
		names[strings.Fields(text)[1]] = true
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), " ")
}

// report is the page of docs/evidence.
func report(results map[string]result) string { return "" }

// SPDX-License-Identifier: Apache-2.0

// The dashboard over the recordings: each of its queries shows something.

package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// shownIn are the phases over which the dashboard is tried, each at a time when what it is for happens.
func shownIn() map[string]string {
	return map[string]string{"healthy": "40m", "sale": "9m", "pool": "12m", "hung-handlers": "7m", "stalled": "7m"}
}

// empty returns those of the queries that show nothing in any of the phases, although a recording has what they ask for.
func empty(t *testing.T, queries []string) (found []string) {
	t.Helper()
	shown, recorded := map[string]bool{}, map[string]bool{}
	for phase, at := range shownIn() {
		targets, err := read(filepath.Join(root, recording(phase)))
		if err != nil {
			t.Fatal(err)
		}
		tests := new(strings.Builder)
		fmt.Fprint(tests, "evaluation_interval: 1m\ntests:\n  - interval: 1s\n    input_series:\n")
		for i, of := range targets {
			if of.every == shownAt {
				of.input(tests, i, of.times[len(of.times)-1])
				for series := range of.series {
					name, _, _ := strings.Cut(series, "{")
					recorded[name] = true
				}
			}
		}
		fmt.Fprint(tests, "    promql_expr_test:\n")
		// Of the last minutes: what was not measured is missing from a scrape.
		count := func(query string) string { return "count_over_time((count(" + query + "))[5m:15s]) > bool 0" }
		for _, query := range queries {
			fmt.Fprintf(tests, "      - {expr: '%s', eval_time: %s, exp_samples: [{labels: '{}', value: 1}]}\n", count(query), at)
		}
		out, err := replay(t, tests.String(), func(rules string) string { return rules })
		for _, query := range queries {
			if failed := fmt.Sprintf("expr: %q, time: ", count(query)); !strings.Contains(out, failed) {
				shown[query] = true
			}
		}
		if err != nil && !strings.Contains(out, "expr: ") {
			t.Fatalf("%s: %v\n%s", phase, err, out)
		}
	}
	for _, query := range queries {
		names := regexp.MustCompile(`\b(?:stopbank|go|process)_[a-z_]+`).FindAllString(query, -1)
		if !shown[query] && !slices.ContainsFunc(names, func(name string) bool { return !recorded[name] }) {
			found = append(found, query)
		}
	}
	return found
}

func TestDashboardShowsSomething(t *testing.T) {
	queries, err := dashboard(filepath.Join(root, "docs", "grafana", "stopbank.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(queries) < 60 {
		t.Fatalf("only %d queries", len(queries))
	}
	const mismatch = `stopbank_limiter_running{job=~".*"} / stopbank_limiter_target{job=~".*"}`
	found := empty(t, append(queries, mismatch))
	for _, query := range found {
		if query != mismatch {
			t.Errorf("the dashboard shows nothing by %s", query)
		}
	}
	if !slices.Contains(found, mismatch) {
		t.Error("labels that do not match are not noticed")
	}
}

// SPDX-License-Identifier: Apache-2.0

// The runbook's queries parse, as the dashboard's do. And what any page, rule or dashboard names exists.

package wardenprom_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
)

const runbookFile = "../../docs/runbook.md"

// runbookQueries are the page's queries: what lies between fences of promql, however far it is indented.
func runbookQueries(page string) (all []string) {
	var query []string
	inside := false
	for line := range strings.Lines(page) {
		switch line = strings.TrimSpace(line); {
		case line == "```promql":
			query, inside = nil, true
		case inside && line == "```":
			all, inside = append(all, strings.Join(query, " ")), false
		case inside:
			query = append(query, line)
		}
	}
	return all
}

// TestQueries: those of the runbook and of the dashboard parse, and ask for metrics that exist.
func TestQueries(t *testing.T) {
	all := runbookQueries(text(t, runbookFile))
	if len(all) < 20 {
		t.Fatalf("the runbook has only %d queries", len(all))
	}
	all = append(all, queries(t)...)
	names := exported(t)
	check := func(queries []string) (found []string) {
		var rules strings.Builder
		rules.WriteString("groups:\n  - name: queries\n    rules:\n")
		for i, query := range queries {
			fmt.Fprintf(&rules, "      - record: page:query_%d\n        expr: '%s'\n", i, strings.ReplaceAll(query, "'", "''"))
			for _, name := range metricName.FindAllString(query, -1) { // what a rule records has colons
				if !slices.Contains(names, name) {
					found = append(found, name+", which nobody exports, in "+query)
				}
			}
		}
		file := filepath.Join(t.TempDir(), "queries.yml")
		noError(t, os.WriteFile(file, []byte(rules.String()), 0o600))
		if out, err := promtool(t, "check", "rules", file); err != nil {
			found = append(found, out)
		}
		return found
	}
	for _, finding := range check(all) {
		t.Error(finding)
	}
	for _, broken := range []string{"rate(stopbank_no_such_total[5m])", "sum by ((limiter) (stopbank_limiter_running)"} {
		if len(check(append(slices.Clone(all), broken))) == 0 {
			t.Errorf("%s is not noticed", broken)
		}
	}
}

// documents are the README and the pages, rules and dashboards under docs, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"../../README.md": text(t, "../../README.md")}
	noError(t, filepath.WalkDir("../../docs", func(path string, _ fs.DirEntry, err error) error {
		if slices.Contains([]string{".md", ".yml", ".json"}, filepath.Ext(path)) {
			all[path] = text(t, path)
		}
		return err
	}))
	if len(all) < 40 {
		t.Fatalf("only %d documents", len(all))
	}
	return all
}

var (
	alertName = regexp.MustCompile(`\bStopbank[A-Z]\w+`)
	matcher   = regexp.MustCompile(`\b(cause|mode|outcome|priority|reason|result|state)(?:=|=~|!=|!~)\\?"([^"\\]*)\\?"`)
)

// TestDocumentsNameWhatExists: metrics, alerts, and the values that queries ask labels for.
func TestDocumentsNameWhatExists(t *testing.T) {
	metrics, alerts := append(exported(t), "stopbank_console"), alerts(t) // that is a directive of Caddyfiles
	values := map[string][]string{"outcome": {"started", "rejected", "canceled"},
		"result": {"lease_not_found", "token_mismatch"}, "reason": {"unopened", "pausing", "reading", "rewound"}}
	for _, file := range must(filepath.Glob("../control/*.go"))(t) { // the reasons of the controller
		for _, m := range regexp.MustCompile(`NewReason\("(\w+)"`).FindAllStringSubmatch(text(t, file), -1) {
			values["reason"] = append(values["reason"], m[1])
		}
	}
	for _, f := range scrape(t, everything(t)).families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				values[l.GetName()] = append(values[l.GetName()], l.GetValue())
			}
		}
	}
	check := func(page string) (found []string) {
		for _, name := range metricName.FindAllString(page, -1) {
			if !slices.Contains(metrics, name) {
				found = append(found, name)
			}
		}
		for _, name := range alertName.FindAllString(page, -1) {
			if !slices.Contains(alerts, name) {
				found = append(found, name)
			}
		}
		for _, m := range matcher.FindAllStringSubmatch(page, -1) {
			for value := range strings.SplitSeq(m[2], "|") {
				if !slices.Contains(values[m[1]], value) {
					found = append(found, m[0])
				}
			}
		}
		return found
	}
	for file, page := range documents(t) {
		for _, name := range check(page) {
			t.Errorf("%s names %s, which does not exist", file, name)
		}
	}
	got := check(`See stopbank_lost_total, StopbankLost, {\"priority=\"low\"}\"} and ` +
		`rate(stopbank_limiter_wait_seconds_count{outcome=~"started|lost", limiter="any"}[5m]).`)
	want := []string{"stopbank_lost_total", "StopbankLost", `priority=\"low\"`, `outcome=~"started|lost"`}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// TestTheRunbooksFrame: a goroutine dump shows a call that hangs in a compartment under the function that the runbook tells to
// look for.
func TestTheRunbooksFrame(t *testing.T) {
	named := regexp.MustCompile("`(bulkhead\\.\\w+)` in it").FindStringSubmatch(text(t, runbookFile))
	if named == nil {
		t.Fatal("the runbook names no function of a goroutine dump")
	}
	s := must(bulkhead.New(bulkhead.Config{Total: 1,
		Compartments: []bulkhead.CompartmentConfig{{Name: "c", Guaranteed: 1, Timeout: time.Minute}}}))(t)
	stack, err := bulkhead.Do(t.Context(), s.Compartment("c"),
		func(context.Context) (string, error) { return string(debug.Stack()), nil })
	if err != nil || !strings.Contains(stack, "/"+named[1]) {
		t.Errorf("%v; no %s in\n%s", err, named[1], stack)
	}
}

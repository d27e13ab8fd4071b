// SPDX-License-Identifier: Apache-2.0

// The tables of docs/metrics.md are made of what a scrape shows and of what the alert rules read: make api.

package wardenprom_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/stopbank/stopbank/warden/wardenprom"
)

const metricsPage = "../../docs/metrics.md"

var (
	update = flag.Bool("update", false, "write the tables of docs/metrics.md instead of comparing them")
	// A block of the page names the groups in its table: a group is all metrics with the same second word.
	block = regexp.MustCompile(`(?s)(<!-- begin: make api ([a-z ]+) -->\n).*?(<!-- end: make api -->)`)
	rule  = regexp.MustCompile(`(?m)^ *- alert: (\w+)\n *expr: (.*)$`)
	// What a rule records: its name, and its expression, on one line or on those that are further to the right.
	recorded = regexp.MustCompile(`(?m)^ *- record: (\S+)\n *expr: (?:\|\n((?: {10}.*\n)+)|(.*))`)
)

// readers are the alerts whose rules read a metric, or a series of a histogram, themselves or by what other rules record, each linked
// to its section of the runbook.
func readers(metric, rules string) string {
	var links []string
	records := recorded.FindAllStringSubmatch(rules, -1)
	slices.Reverse(records) // a rule reads what those before it record
	for _, r := range rule.FindAllStringSubmatch(rules, -1) {
		r[2], _, _ = strings.Cut(r[2], " unless on (job) ") // another alert speaks for this one
		for _, of := range records {
			r[2] = strings.ReplaceAll(r[2], of[1], of[2]+of[3])
		}
		if regexp.MustCompile(`\b` + metric + `(_bucket|_sum|_count)?\b`).MatchString(r[2]) {
			links = append(links, fmt.Sprintf("[%s](runbook.md#%s)", r[1], strings.ToLower(r[1])))
		}
	}
	slices.Sort(links)
	return strings.Join(slices.Compact(links), ", ")
}

// rows are the rows of each group, in the order of the descriptions; metrics that observers feed follow by name.
func rows(t *testing.T, scraped map[string]*dto.MetricFamily, rules string) map[string]string {
	t.Helper()
	var names []string
	described := make(chan *prometheus.Desc, 1000)
	must(wardenprom.New(wardenprom.Config{}))(t).Describe(described)
	close(described)
	for d := range described {
		names = append(names, metricName.FindString(d.String()))
	}
	for _, name := range slices.Sorted(maps.Keys(scraped)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	groups := map[string]string{}
	for _, name := range names {
		f := scraped[name]
		if f == nil {
			t.Errorf("%s is not scraped: give it a value in everything (scrape_test.go)", name)
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		groups[strings.Split(name, "_")[1]] += fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", name,
			strings.ToLower(f.GetType().String()),
			strings.Join(labels, ", "), strings.TrimSuffix(f.GetHelp(), "."), readers(name, rules))
	}
	return groups
}

// fill makes the tables of a page anew, and returns the groups that it lacks.
func fill(page string, groups map[string]string) (filled string, missing []string) {
	left := maps.Clone(groups)
	filled = block.ReplaceAllStringFunc(page, func(old string) string {
		m := block.FindStringSubmatch(old)
		table := []string{m[1], "| metric | type | labels | meaning | alerts |\n|---|---|---|---|---|\n"}
		for name := range strings.FieldsSeq(m[2]) {
			table = append(table, left[name])
			delete(left, name)
		}
		return strings.Join(append(table, m[3]), "")
	})
	return filled, slices.Sorted(maps.Keys(left))
}

// TestMetricsPage: the page lists each metric that is scraped once, as it is. With -update it writes the page.
func TestMetricsPage(t *testing.T) {
	page := text(t, metricsPage)
	groups := rows(t, scrape(t, everything(t)).families, text(t, alertsFile))
	want, missing := fill(page, groups)
	if len(missing) > 0 {
		t.Errorf("no table of the page has the metrics of %q", missing)
	}
	if _, missing = fill("", groups); len(missing) != len(groups) {
		t.Errorf("a page without tables lacks only %q", missing)
	}
	twice, _ := fill(page+page, groups)
	for group, table := range groups {
		if strings.Count(twice, table) != 1 {
			t.Errorf("where a page asks twice for %s, it is not there once", group)
		}
	}
	if *update {
		noError(t, os.WriteFile(metricsPage, []byte(want), 0o644))
	} else if page != want {
		t.Error("the tables of docs/metrics.md are out of date: make api")
	}
}

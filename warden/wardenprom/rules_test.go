// SPDX-License-Identifier: Apache-2.0

// The alert rules and the dashboard of docs/: they parse, and name metrics that exist.

package wardenprom_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

const (
	alertsFile    = "../../docs/prometheus/alerts.yml"
	sloFile       = "../../docs/prometheus/slo.yml"
	offeredFile   = "../../docs/prometheus/offered.yml"
	offeredTests  = "../../docs/prometheus/offered_test.yml"
	dashboardFile = "../../docs/grafana/stopbank.json"
)

// promtool runs Prometheus' own tool, without which the test is skipped, unless STOPBANK_PROMTOOL is "required".
func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("STOPBANK_PROMTOOL") == "required" {
			t.Fatal(err)
		}
		t.Skip("promtool is not installed (Debian: prometheus): the alert rules are not tried")
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	return string(out), err
}

func text(t *testing.T, path string) string {
	t.Helper()
	content := must(os.ReadFile(path))(t)
	return string(content)
}

var metricName = regexp.MustCompile(`\bstopbank_[a-z_]+`)

// exported are the names of the metrics, and of the series of the histograms among them.
func exported(t *testing.T) (names []string) {
	t.Helper()
	for name, f := range scrape(t, everything(t)).families {
		names = append(names, name)
		if f.GetType() == dto.MetricType_HISTOGRAM {
			names = append(names, name+"_bucket", name+"_sum", name+"_count")
		}
	}
	return names
}

// board is the dashboard, as far as it is ours to get right.
type board struct {
	Panels      []panel
	Templating  struct{ List []struct{ Name string } }
	Annotations struct{ List []struct{ Expr string } }
}

type panel struct {
	ID          int
	Title, Type string
	GridPos     struct{ X, Y, W, H int }
	Description string
	Links       []struct{ Title, URL string }
	Datasource  struct{ Type, UID string }
	Targets     []struct {
		RefID, Expr, LegendFormat string
		Datasource                struct{ Type, UID string }
	}
}

func dashboard(t *testing.T) (b board) {
	t.Helper()
	noError(t, json.Unmarshal([]byte(text(t, dashboardFile)), &b))
	return b
}

// queries are the dashboard's, with Grafana's variables replaced.
func queries(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, p := range dashboard(t).Panels {
		for _, target := range p.Targets {
			all = append(all, strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*").Replace(target.Expr))
		}
	}
	if len(all) < 20 {
		t.Fatalf("the dashboard asks only %d things", len(all))
	}
	return all
}

// faults are what Grafana would not show, or show wrongly, what says nothing of itself, and links that lead to no alert's section.
func (b board) faults(rules string) (found []string) {
	fault := func(p panel, format string, args ...any) {
		found = append(found, fmt.Sprintf("panel %d (%s): ", p.ID, p.Title)+fmt.Sprintf(format, args...))
	}
	variables := map[string]bool{"__rate_interval": true}
	for _, v := range b.Templating.List {
		variables[v.Name] = true
	}
	for _, a := range b.Annotations.List {
		for _, used := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(a.Expr, -1) {
			if !variables[used[1]] {
				found = append(found, "annotations: there is no variable "+used[1])
			}
		}
	}
	source := struct{ Type, UID string }{"prometheus", "${datasource}"}
	ids, taken := map[int]bool{}, map[[2]int]int{}
	for _, p := range b.Panels {
		if p.ID == 0 || ids[p.ID] {
			fault(p, "another panel has its ID")
		}
		ids[p.ID] = true
		at := p.GridPos
		if at.W < 1 || at.H < 1 || at.X < 0 || at.Y < 0 || at.X+at.W > 24 {
			fault(p, "it is outside of the grid: %+v", at)
		}
		for x := range at.W {
			for y := range at.H {
				if other := taken[[2]int{at.X + x, at.Y + y}]; other != 0 {
					fault(p, "it lies on panel %d", other)
				}
				taken[[2]int{at.X + x, at.Y + y}] = p.ID
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Datasource != source || p.Description == "" {
			fault(p, "%d queries of %+v, described by %q", len(p.Targets), p.Datasource, p.Description)
		}
		for _, l := range p.Links {
			if !strings.Contains(rules, "- alert: "+l.Title+"\n") || l.URL != runbookURL+strings.ToLower(l.Title) {
				fault(p, "it leads to %s for %s", l.URL, l.Title)
			}
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if q.RefID == "" || refs[q.RefID] || q.Datasource != source || !metricName.MatchString(q.Expr) {
				fault(p, "query %q twice, of %+v, or for no metric: %s", q.RefID, q.Datasource, q.Expr)
			}
			refs[q.RefID] = true
			for _, used := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(q.Expr+q.Datasource.UID, -1) {
				if !variables[used[1]] {
					fault(p, "there is no variable %s", used[1])
				}
			}
			by := regexp.MustCompile(`by \([^)]*\)`).FindString(q.Expr)
			for _, label := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(q.LegendFormat, -1) {
				if !regexp.MustCompile(`\b` + label[1] + `\b`).MatchString(by) {
					fault(p, "the legend has %s, which %s takes away", label[1], q.Expr)
				}
			}
		}
	}
	return found
}

func TestDashboardIsWhole(t *testing.T) {
	rules := text(t, alertsFile)
	for _, fault := range dashboard(t).faults(rules) {
		t.Error(fault)
	}
	for name, spoil := range map[string]func(b *board){
		"an ID twice":            func(b *board) { b.Panels[1].ID = b.Panels[2].ID },
		"a panel over another":   func(b *board) { b.Panels[1].GridPos.W++ },
		"a panel over the edge":  func(b *board) { b.Panels[5].GridPos.X++ },
		"no query":               func(b *board) { b.Panels[1].Targets = nil },
		"no metric":              func(b *board) { b.Panels[1].Targets[0].Expr = "up" },
		"no description":         func(b *board) { b.Panels[2].Description = "" },
		"a link elsewhere":       func(b *board) { b.Panels[1].Links[0].URL = "elsewhere" },
		"a link for no alert":    func(b *board) { b.Panels[1].Links[0].Title += "x"; b.Panels[1].Links[0].URL += "x" },
		"a source of one's own":  func(b *board) { b.Panels[1].Targets[0].Datasource.UID = "mine" },
		"a query's name twice":   func(b *board) { b.Panels[7].Targets[1].RefID = b.Panels[7].Targets[0].RefID },
		"a variable of nobody":   func(b *board) { b.Templating.List = b.Templating.List[:1] },
		"an annotation of none":  func(b *board) { b.Annotations.List[0].Expr = `ALERTS{pod=~"$pod"}` },
		"a label that is summed": func(b *board) { b.Panels[1].Targets[0].LegendFormat = "{{limiter}}" },
	} {
		b := dashboard(t)
		if spoil(&b); len(b.faults(rules)) == 0 {
			t.Errorf("%s is not noticed", name)
		}
	}
}

// TestMetricsOfWorkAreUsed: each metric of ledgers and dispatchers is in a rule, on the dashboard, or in the runbook.
func TestMetricsOfWorkAreUsed(t *testing.T) {
	used := text(t, alertsFile) + text(t, dashboardFile) + text(t, "../../docs/runbook.md")
	isUsed := func(name string) bool { return regexp.MustCompile(name + `\b`).MatchString(used) }
	of := regexp.MustCompile(`^stopbank_(dispatch|lease)_`)
	n := 0
	for _, name := range exported(t) {
		if of.MatchString(name) {
			if n++; !isUsed(name) {
				t.Errorf("%s is used nowhere", name)
			}
		}
	}
	if isUsed("stopbank_dispatch_dead_letter") { // as a part of others it is
		t.Error("an unused metric is not noticed")
	}
	if n < 20 {
		t.Errorf("only %d metrics of ledgers and dispatchers", n)
	}
}

// runbookURL begins the runbook_url of each alert, which a pager shows as a link, and the links of the dashboard. The sed of
// docs/observability.md and of the head of alerts.yml sets another.
const runbookURL = "https://github.com/stopbank/stopbank/blob/main/docs/runbook.md#"

// TestAlertsLead: each alert links the section of the runbook that has its name, and no section is about an alert that there is not.
func TestAlertsLead(t *testing.T) {
	rules, alerts := text(t, alertsFile)+text(t, sloFile), alerts(t)
	var sections, led []string
	for _, m := range regexp.MustCompile(`(?m)^## (Stopbank\w+)$`).FindAllStringSubmatch(text(t, runbookFile), -1) {
		sections = append(sections, m[1])
	}
	if slices.Sort(sections); !slices.Equal(sections, alerts) {
		t.Errorf("the runbook has sections %q; the alerts are %q", sections, alerts)
	}
	for _, m := range regexp.MustCompile(`- alert: (\w+)\n(?: .*\n)*? +runbook_url: '(.*)'\n`).FindAllStringSubmatch(rules, -1) {
		if led = append(led, m[1]); m[2] != runbookURL+strings.ToLower(m[1]) {
			t.Errorf("%s leads to %s", m[1], m[2])
		}
	}
	if n := strings.Count(rules, "- alert: "); len(led) != n || len(alerts) < 20 {
		t.Errorf("%d of %d rules lead to a section", len(led), n)
	}
}

// alerts are the names of the alerts.
func alerts(t *testing.T) (names []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^ *- alert: (\w+)$`).FindAllStringSubmatch(text(t, alertsFile)+text(t, sloFile), -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// The rules of offered load, and the manifest that scales by them, use names that exist; a rule with another metric, or without
// its condition, is noticed by its test.
func TestOfferedLoad(t *testing.T) {
	rules, manifest := text(t, offeredFile), text(t, "../../docs/kubernetes/rollout.yaml")
	for _, name := range metricName.FindAllString(rules, -1) {
		if !slices.Contains(exported(t), name) {
			t.Errorf("the rules name %s, which is not exported", name)
		}
	}
	for _, name := range regexp.MustCompile(`stopbank:\w+:\w+`).FindAllString(manifest, -1) {
		if !strings.Contains(rules, "- record: "+name+"\n") {
			t.Errorf("the manifest names %s, which no rule records", name)
		}
	}
	as := regexp.MustCompile(`name: \{as: (\w+)\}`).FindStringSubmatch(manifest)
	by := regexp.MustCompile(`metric:\n +name: (\w+)\n`).FindStringSubmatch(manifest)
	if as == nil || by == nil || as[1] != by[1] {
		t.Errorf("the manifest scales by %q, and its adapter makes %q", by, as)
	}
	if out, err := promtool(t, "test", "rules", offeredTests); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := t.TempDir()
	for _, broken := range []*strings.Replacer{
		strings.NewReplacer("stopbank_limiter_submitted_total", "stopbank_limiter_executed_total"),
		strings.NewReplacer("stopbank_limiter_executed_total", "stopbank_limiter_submitted_total"),
		strings.NewReplacer("stopbank_limiter_rejected_total", "stopbank_limiter_executed_total"),
	} {
		noError(t, os.WriteFile(filepath.Join(dir, "offered.yml"), []byte(broken.Replace(rules)), 0o600))
		noError(t, os.WriteFile(filepath.Join(dir, "test.yml"), []byte(text(t, offeredTests)), 0o600))
		if _, err := promtool(t, "test", "rules", filepath.Join(dir, "test.yml")); err == nil {
			t.Errorf("a broken rule passes its test: %s", broken.Replace(rules))
		}
	}
}

// The alert rules and the dashboard of docs/: they parse, name metrics that exist, and fire when they should.

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
)

const (
	alertsFile    = "../../docs/prometheus/alerts.yml"
	alertsTests   = "../../docs/prometheus/alerts_test.yml"
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
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

var metricName = regexp.MustCompile(`\bstopbank_[a-z_]+`)

// exported lists the metrics of the page, which TestThePageNamesEveryMetric compares with the code, and the series of
// the histograms among them.
func exported(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(stopbank_[a-z_]+)` \\| (\\w+)").FindAllStringSubmatch(text(t, "../../docs/observability.md"), -1) {
		names = append(names, row[1])
		if row[2] == "histogram" {
			names = append(names, row[1]+"_bucket", row[1]+"_sum", row[1]+"_count")
		}
	}
	if len(names) < 80 {
		t.Fatalf("the page names only %d metrics", len(names))
	}
	return names
}

// queries are the dashboard's, with Grafana's variables replaced.
func queries(t *testing.T) []string {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Type    string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(text(t, dashboardFile)), &board); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q asks nothing", p.Title)
		}
		for _, target := range p.Targets {
			all = append(all, strings.NewReplacer("$__rate_interval", "1m", "$job", ".*").Replace(target.Expr))
		}
	}
	if len(all) < 20 {
		t.Fatalf("the dashboard asks only %d things", len(all))
	}
	return all
}

func TestRulesAndDashboardNameWhatExists(t *testing.T) {
	names := exported(t)
	unknown := func(where, query string) (found []string) {
		for _, name := range metricName.FindAllString(query, -1) {
			if !slices.Contains(names, name) {
				found = append(found, where+" names "+name+", which nobody exports")
			}
		}
		return found
	}
	for _, query := range queries(t) {
		for _, finding := range unknown("the dashboard", query) {
			t.Error(finding)
		}
		if !metricName.MatchString(query) {
			t.Errorf("the dashboard asks for no metric: %s", query)
		}
	}
	for line := range strings.SplitSeq(text(t, alertsFile), "\n") {
		if expr, ok := strings.CutPrefix(strings.TrimSpace(line), "expr:"); ok {
			for _, finding := range unknown("a rule", expr) {
				t.Error(finding)
			}
		}
	}
	if len(unknown("x", "rate(stopbank_no_such_total[1m])")) != 1 {
		t.Error("a metric that nobody exports is not noticed")
	}
}

func TestDashboardParses(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	for i, query := range queries(t) {
		fmt.Fprintf(&rules, "      - record: dashboard:query_%d\n        expr: '%s'\n", i, strings.ReplaceAll(query, "'", "''"))
	}
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	for broken, want := range map[bool]bool{false: true, true: false} {
		content := rules.String()
		if broken {
			content = strings.Replace(content, "sum by (", "sum by ((", 1)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := promtool(t, "check", "rules", file); (err == nil) != want {
			t.Errorf("broken %v: %v\n%s", broken, err, out)
		}
	}
}

// TestAlertsLead: each rule names a section of the runbook that exists.
func TestAlertsLead(t *testing.T) {
	sections := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(text(t, "../../docs/runbook.md"), -1) {
		sections[strings.NewReplacer(" ", "-", "(", "", ")", "").Replace(strings.ToLower(heading[1]))] = true
	}
	rules := text(t, alertsFile)
	led := regexp.MustCompile(`(?m)^          runbook: 'docs/runbook\.md#(.*)'$`).FindAllStringSubmatch(rules, -1)
	if n := strings.Count(rules, "- alert: "); n == 0 || len(led) != n {
		t.Errorf("%d of %d rules name a section", len(led), n)
	}
	for _, to := range led {
		if !sections[to[1]] {
			t.Errorf("the runbook has no section %q", to[1])
		}
	}
}

func TestAlertsFire(t *testing.T) {
	if out, err := promtool(t, "check", "rules", alertsFile); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := promtool(t, "test", "rules", alertsTests); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	// Every rule is tried, and one that says the opposite is noticed by its own test.
	rules, tests := text(t, alertsFile), text(t, alertsTests)
	alerts := regexp.MustCompile(`(?m)^      - alert: (\w+)\n        expr: (.*)$`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 8 {
		t.Fatalf("only %d rules", len(alerts))
	}
	for _, alert := range alerts {
		if !strings.Contains(tests, "alertname: "+alert[1]+"\n") {
			t.Errorf("%s is not tried", alert[1])
		}
		opposite := strings.NewReplacer(" > ", " < ", " == ", " != ").Replace(alert[2])
		rules = strings.Replace(rules, "expr: "+alert[2], "expr: "+opposite, 1)
	}
	dir := t.TempDir()
	for file, content := range map[string]string{"alerts.yml": rules, "alerts_test.yml": tests} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := promtool(t, "test", "rules", filepath.Join(dir, "alerts_test.yml"))
	for _, alert := range alerts {
		if err == nil || !strings.Contains(out, "alertname: "+alert[1]+",") {
			t.Errorf("the opposite of %s passes its test: %v", alert[1], err)
		}
	}
}

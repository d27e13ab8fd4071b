package main

// Scaling by what is offered: the recording rules of the docs over what the storefront really exports, and the manifest that uses them.

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden"
)

const (
	offeredFile  = "../../docs/prometheus/offered.yml"
	manifestFile = "../../docs/kubernetes/rollout.yaml"
)

func page(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// scrape is the series of a limiter: their values by name and labels.
func scrape(t *testing.T, url string) map[string]int {
	t.Helper()
	_, _, text := call(t, "GET", url+"/metrics", "", "")
	series := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^(stopbank_limiter_\w+_total\{[^}]*)\} (\d+)$`).FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		series[m[1]] = n
	}
	return series
}

// promtool runs Prometheus' own tool, without which the test is skipped, unless STOPBANK_PROMTOOL is "required".
func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("STOPBANK_PROMTOOL") == "required" {
			t.Fatal(err)
		}
		t.Skip("promtool is not installed (Debian: prometheus): the rules are not tried")
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	return string(out), err
}

// Two processes grow by what a real one did: one that serves all, one that rejects as well.
func TestOfferedLoad(t *testing.T) {
	s, p := newOperators(t, protected, secret, small())
	// Series of a kind of rejection are there once it has happened.
	before := scrape(t, p.url)
	for i := range 6 { // of two priorities
		if status, _, text := call(t, "GET", s.url+[]string{"/products", "/admin/counts"}[i%2], "", ""); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}
	s.warden.Limiter().Close()
	for range 3 {
		if status, _, _ := call(t, "GET", s.url+"/products", "", ""); status != http.StatusServiceUnavailable {
			t.Fatalf("closed, and %d", status)
		}
	}
	if _, err := s.warden.TryAcquire(warden.Task{}); err == nil {
		t.Fatal("closed, and admits")
	}
	after := scrape(t, p.url)

	var series strings.Builder
	step := func(name, instance string, by int) {
		fmt.Fprintf(&series, "      - series: '%s,instance=\"%s\"}'\n        values: '100+%dx40'\n", name, instance, by)
	}
	grown := map[string]int{} // in a step of 15 s, by metric
	for _, name := range slices.Sorted(maps.Keys(after)) {
		by := after[name] - before[name]
		metric, _, _ := strings.Cut(name, "{")
		grown[metric] += by
		step(name, "full", by)
		if strings.HasPrefix(metric, "stopbank_limiter_rejected") {
			by = 0
		}
		step(name, "idle", by)
	}
	if grown["stopbank_limiter_submitted_total"] != 10 || grown["stopbank_limiter_executed_total"] != 6 || grown["stopbank_limiter_rejected_total"] != 4 {
		t.Fatalf("that was %v", grown)
	}
	rules := page(t, offeredFile)
	records := map[string]float64{
		"stopbank:offered:rate1m":          2 * 10 / 15.0,
		"stopbank:served:ratio1m":          0.6,
		"stopbank:served_when_full:rate1m": 6 / 15.0,
	}
	for name, want := range records {
		if !strings.Contains(rules, "- record: "+name+"\n") {
			t.Errorf("there is no %s", name)
		}
		for wrong, right := range map[bool]bool{false: true, true: false} {
			value := want
			if wrong {
				value *= 1.01
			}
			if out, err := tryRules(t, rules, series.String(), name, value); (err == nil) != right {
				t.Errorf("%s, want %v (wrong on purpose: %v): %v\n%s", name, value, wrong, err, out)
			}
		}
	}
	// While nobody rejects, nobody is known to be full.
	calm := regexp.MustCompile(`(?m)^      - series: '[^']*instance="full"\}'\n.*\n`).ReplaceAllString(series.String(), "")
	if out, err := tryRules(t, rules, calm, "stopbank:served_when_full:rate1m", -1); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// tryRules asks for name after five minutes, which is to be want; negative: nothing.
func tryRules(t *testing.T, rules, series, name string, want float64) (string, error) {
	t.Helper()
	dir := t.TempDir()
	expected := "[]"
	if want >= 0 {
		expected = fmt.Sprintf("\n          - labels: '{limiter=\"storefront\"}'\n            value: %v", math.Round(1000*want))
	}
	test := fmt.Sprintf("rule_files: [rules.yml]\nevaluation_interval: 15s\ntests:\n  - interval: 15s\n    input_series:\n%s"+
		"    promql_expr_test:\n      - expr: 'round(1000 * %s)'\n        eval_time: 5m\n        exp_samples: %s\n", series, name, expected)
	for file, content := range map[string]string{"rules.yml": rules, "test.yml": test} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return promtool(t, "test", "rules", filepath.Join(dir, "test.yml"))
}

// The manifest names series that are recorded, and what it scales by is what the adapter makes of them.
func TestTheManifestNamesWhatExists(t *testing.T) {
	manifest, rules := page(t, manifestFile), page(t, offeredFile)
	named := regexp.MustCompile(`stopbank:\w+:\w+`).FindAllString(manifest, -1)
	if len(named) < 3 {
		t.Errorf("it names %q", named)
	}
	for _, name := range named {
		if !strings.Contains(rules, "- record: "+name+"\n") {
			t.Errorf("it names %s, which nobody records", name)
		}
	}
	for _, m := range regexp.MustCompile(`\b(stopbank_\w+)\[`).FindAllStringSubmatch(rules, -1) {
		if row := "| `" + m[1] + "` |"; !strings.Contains(page(t, "../../docs/observability.md"), row) {
			t.Errorf("the rules name %s, which nobody exports", m[1])
		}
	}
	as := regexp.MustCompile(`name: \{as: (\w+)\}`).FindStringSubmatch(manifest)
	by := regexp.MustCompile(`metric:\n +name: (\w+)\n +selector: \{matchLabels: \{limiter: (\w+)\}\}`).FindStringSubmatch(manifest)
	if as == nil || by == nil || as[1] != by[1] || by[2] != "storefront" {
		t.Errorf("it scales by %q, and the adapter makes %q", by, as)
	}
}

// What the manifest allows a process for leaving is more than it takes, and the probes ask for what is there.
func TestTheManifestFitsTheProgram(t *testing.T) {
	manifest, program := page(t, manifestFile), page(t, "../rollout/main.go")
	seconds := func(text, pattern string) time.Duration {
		m := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no %s", pattern)
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(n) * time.Second
	}
	grace, spread := seconds(manifest, `terminationGracePeriodSeconds: (\d+)`), seconds(manifest, `"-spread", "(\d+)s"`)
	shutdown := seconds(program, `context\.WithTimeout\(context\.Background\(\), (\d+)\*time\.Second\)`)
	if grace <= spread+shutdown {
		t.Errorf("%v to leave, which takes %v and %v", grace, spread, shutdown)
	}
	if period := seconds(manifest, `readinessProbe:\n.*\n +periodSeconds: (\d+)\n +failureThreshold: 1\n`); spread < 3*period {
		t.Errorf("served for %v when it is not ready, which is asked every %v", spread, period)
	}
	for _, path := range regexp.MustCompile(`httpGet: \{path: (\S+),`).FindAllStringSubmatch(manifest, -1) {
		if !strings.Contains(program, `"GET `+path[1]+`"`) {
			t.Errorf("%s is asked for, and not there", path[1])
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

// The recordings through the rules: each rule fires in its phases and in no other, at every scrape interval, whatever the
// moments at which rules are evaluated.

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fires are the alerts of each phase: name, severity and, where there is one, the compartment, the class of priority, the pool
// or the reason.
func fires() map[string][]string {
	return map[string][]string{
		"healthy":         nil,
		"rolling-restart": nil,
		"slow":            {"StopbankCompartmentRejectsNearlyAll ticket compartment=analytics"},
		"crowded":         {"StopbankQueueDeep ticket compartment=analytics"},
		"crowded-critical": {
			"StopbankCriticalCompartmentRejects page compartment=checkout", "StopbankQueueDeep page compartment=admin",
			"StopbankErrorBudgetBurnsFast page compartment=checkout",
		},
		"critical-rejected": {
			"StopbankCriticalUnserved page priority=critical", "StopbankManyTasksRejected ticket priority=high",
			"StopbankManyTasksRejected ticket priority=normal", "StopbankErrorBudgetBurnsFast page",
			"StopbankCriticalSlow page priority=critical",
		},
		"sale":           {"StopbankManyTasksRejected ticket priority=normal"},
		"pool":           {"StopbankPoolFull ticket pool=shop-db", "StopbankManyTasksRejected ticket priority=normal"},
		"silent-control": {"StopbankLimiterDecisionStale page"},
		"stuck-work": {
			"StopbankAbandonedWorkGrows page compartment=admin", "StopbankAbandonedWorkGrows ticket compartment=analytics",
			"StopbankAbandonedWorkHoldsSlots page compartment=admin", "StopbankAbandonedWorkHoldsSlots ticket compartment=analytics",
			"StopbankTasksFail ticket priority=high",
		},
		"hung-handlers": {
			"StopbankCriticalUnserved page priority=critical", "StopbankHandlersHang page",
			"StopbankManyTasksRejected ticket priority=high", "StopbankManyTasksRejected ticket priority=normal",
			"StopbankErrorBudgetBurnsFast page",
		},
		"tasks-fail": {"StopbankTasksFail page priority=critical", "StopbankErrorBudgetBurnsFast page"},
		"connections-leak": {
			"StopbankConnectionsLeak ticket pool=shop-db", "StopbankPoolFull ticket pool=shop-db",
			"StopbankTasksFail page priority=critical", "StopbankTasksFail ticket priority=high", "StopbankTasksFail ticket priority=normal",
			"StopbankErrorBudgetBurnsFast page",
		},
		"clients-leave": {"StopbankClientsLeave ticket priority=normal"},
		"critical-slow": {
			"StopbankCriticalSlow page priority=critical", "StopbankErrorBudgetBurnsFast page",
		},
		"stalled": {"StopbankPartitionStalled page reason=working", "StopbankPartitionStalled page reason=unopened"},
	}
}

// A broken rule is one that the replay of a phase must notice, where it is scraped this often: it never fires, or where it should not.
type broken struct{ what, phase, every, rule, old, broken string }

// ends is the line before which it is broken: an alert of its own ends with its labels, the rules of the service level with the
// alerts.
func (b broken) ends() string {
	if strings.HasPrefix(b.rule, "alert:") {
		return "        labels:\n"
	}
	return "      - alert:"
}

func brokenRules() []broken {
	return []broken{
		{
			"the gauge of a scrape is as old as the scrape", "healthy", "60s", "alert: StopbankLimiterDecisionStale",
			"stopbank_limiter_decision_stale == 1 and sum without (priority) (rate(stopbank_limiter_submitted_total[5m])) > 0",
			"time() - stopbank_control_decision_timestamp_seconds > stopbank_control_decision_valid_seconds",
		},
		{"a minute holds one scrape", "sale", "60s", "alert: StopbankManyTasksRejected", "[5m]", "[1m]"},
		{"whatever is not served pages", "sale", "15s", "alert: StopbankCriticalUnserved", "stopbank:critical_unserved:ratio5m",
			"stopbank:limiter_unserved:rate5m"},
		{"what runs hangs", "pool", "15s", "alert: StopbankHandlersHang", "stopbank:hung:running",
			"sum without (priority) (stopbank_limiter_running)"},
		{"a background queue pages", "crowded", "15s", "alert: StopbankQueueDeep", "criticality >= 64", "criticality >= -64"},
		{"a slow report pages", "slow", "60s", "alert: StopbankCriticalCompartmentRejects", " == 127", " < 127"},
		{"the opposite", "rolling-restart", "60s", "alert: StopbankCompartmentDecisionStale", " == 1", " < 1"},
		{"a pool that is in use is full, whoever waits", "pool", "15s", "alert: StopbankPoolFull", "> 0.9 and", "> 0.05 or"},
		{"no pool is that full", "pool", "60s", "alert: StopbankPoolFull", "> 0.9", "> 1"},
		{"only what handlers asked for", "stalled", "60s", "alert: StopbankPartitionStalled", "!~", "=~"},
		{"all work is critical", "sale", "15s", "name: stopbank-slo", `{priority="critical"}`, ""},
	}
}

// promtool runs Prometheus' own tool, without which the test is skipped, unless STOPBANK_PROMTOOL is "required".
func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("STOPBANK_PROMTOOL") == "required" {
			t.Fatal(err)
		}
		t.Skip("promtool is not installed (Debian: prometheus): the recordings are not replayed")
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	return string(out), err
}

const root = "../../.."

// input writes a target as promtool reads series: a value or none for each second. What ends before the recording, or is
// missing from a scrape, is marked as Prometheus marks it: stale.
func (t target) input(out *strings.Builder, instance, end int) {
	every := map[string]int{"5s": 5, "15s": 15, "60s": 60}[t.every]
	for _, name := range slices.Sorted(maps.Keys(t.series)) {
		fmt.Fprintf(out, "      - series: '%s'\n        values: '", labeled(name, instance))
		next, alive := 0, false // the second that comes next; the scrape before had the series
		put := func(at int, value string) {
			if at > next {
				fmt.Fprintf(out, "_x%d ", at-next)
			}
			fmt.Fprint(out, value, " ")
			next = at + 1
		}
		for i, at := range t.times {
			if alive && at-t.times[i-1] > every*3/2 {
				put(t.times[i-1]+every, "stale")
				alive = false
			}
			if value := t.series[name][i]; value != "_" {
				put(at, value)
				alive = true
			} else if alive {
				put(at, "stale")
				alive = false
			}
		}
		if last := t.times[len(t.times)-1]; alive && last+every*3/2 < end {
			put(last+every, "stale")
		}
		fmt.Fprintln(out, "'")
	}
}

// tests is a file for promtool that replays a phase as it was scraped at some intervals, and evaluates the rules at one that
// drifts against them.
func tests(t *testing.T, evaluation, phase string, scraped ...string) string {
	t.Helper()
	var out strings.Builder
	fmt.Fprintf(&out, "rule_files: [alerts.yml, slo.yml]\nevaluation_interval: %s\n", evaluation)
	out.WriteString("group_eval_order: [stopbank, stopbank-slo]\ntests:\n")
	targets, err := read(filepath.Join(root, recording(phase)))
	if err != nil {
		t.Fatal(err)
	}
	for _, every := range scraped {
		end := 0
		for _, of := range targets {
			if of.every == every {
				end = max(end, of.times[len(of.times)-1])
			}
		}
		fmt.Fprintf(&out, "  - name: '%s, scraped every %s'\n    interval: 1s\n    input_series:\n", phase, every)
		for i, of := range targets {
			if of.every == every {
				of.input(&out, i, end)
			}
		}
		// Nothing fires before a fault, and until the end nothing but what should.
		const fired = `group by (alertname, severity, compartment, priority, pool, reason) ` +
			`(max_over_time(ALERTS{alertstate="firing"}[2h]))`
		fmt.Fprintf(&out, "    promql_expr_test:\n      - {expr: '%s', eval_time: %s}\n", fired, well)
		fmt.Fprintf(&out, "      - expr: '%s'\n        eval_time: %ds\n        exp_samples:\n", fired, end)
		for _, alert := range fires()[phase] {
			fields := strings.Fields(alert)
			labels := fmt.Sprintf("alertname=%q,severity=%q", fields[0], fields[1])
			if len(fields) > 2 {
				name, value, _ := strings.Cut(fields[2], "=")
				labels += fmt.Sprintf(",%s=%q", name, value)
			}
			fmt.Fprintf(&out, "          - {labels: '{%s}', value: 1}\n", labels)
		}
	}
	return out.String()
}

// replay runs promtool over a file of tests, with rules that may be broken.
func replay(t *testing.T, tests string, change func(rules string) string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	for _, file := range rules() {
		b, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), []byte(change(string(b))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "replay.yml")
	if err := os.WriteFile(file, []byte(tests), 0o600); err != nil {
		t.Fatal(err)
	}
	return promtool(t, "test", "rules", file)
}

// What is written is read again, and a replay has each sample at its second, and what is missing marked as stale.
func TestRecording(t *testing.T) {
	of := newTarget("15s", map[string]map[int]string{
		`up{a="b c"}`: {3: "1", 18: "1", 33: "1", 93: "2", 108: "2"},
		`late{a="}"}`: {33: "7", 93: "8"},
		`bare{}`:      {108: "3"},
	})
	path := filepath.Join(t.TempDir(), "x.txt.gz")
	if err := write(path, "a comment", []target{of, of}); err != nil {
		t.Fatal(err)
	}
	got, err := read(path)
	if diff := cmp.Diff([]target{of, of}, got, cmp.AllowUnexported(target{})); err != nil || diff != "" {
		t.Fatalf("%v (-want +got)\n%s", err, diff)
	}
	var replayed strings.Builder
	got[0].input(&replayed, 4, 200)
	want := `      - series: 'bare{job="storefront",instance="4"}'
        values: '_x108 3 _x14 stale '
      - series: 'late{a="}",job="storefront",instance="4"}'
        values: '_x33 7 _x14 stale _x44 8 _x14 stale '
      - series: 'up{a="b c",job="storefront",instance="4"}'
        values: '_x3 1 _x14 1 _x14 1 _x14 stale _x44 2 _x14 2 _x14 stale '
`
	if replayed.String() != want {
		t.Errorf("%s\nwant\n%s", replayed.String(), want)
	}
	if _, err := read("recording.go"); err == nil {
		t.Error("it reads what is no recording")
	}
}

func TestReplay(t *testing.T) {
	recordings, err := filepath.Glob(filepath.Join(root, recording("*")))
	if err != nil || len(recordings) != len(fires()) {
		t.Errorf("%d recordings of %d phases, %v", len(recordings), len(fires()), err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	for _, phase := range slices.Sorted(maps.Keys(fires())) {
		for _, evaluation := range []string{"13s", "31s"} {
			t.Run(phase+" evaluated every "+evaluation, func(t *testing.T) {
				t.Parallel()
				if out, err := replay(t, tests(t, evaluation, phase, intervals()...),
					func(rules string) string { return rules }); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

func TestBrokenRulesAreNoticed(t *testing.T) {
	for _, b := range brokenRules() {
		t.Run(b.rule+": "+b.what, func(t *testing.T) {
			t.Parallel()
			changed := 0
			out, err := replay(t, tests(t, "13s", b.phase, b.every), func(rules string) string {
				before, after, found := strings.Cut(rules, b.rule+"\n")
				if !found {
					return rules
				}
				rule, rest, _ := strings.Cut(after, b.ends())
				changed = strings.Count(rule, b.old)
				return before + b.rule + "\n" + strings.ReplaceAll(rule, b.old, b.broken) + b.ends() + rest
			})
			_, name, _ := strings.Cut(b.rule, ": ")
			if changed == 0 || err == nil || !strings.Contains(out, "exp: ") || name != "stopbank-slo" && !strings.Contains(out, name) {
				t.Errorf("changed %d times, and %v\n%s", changed, err, out)
			}
		})
	}
}

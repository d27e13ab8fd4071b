// The rules by the made-up series of docs/prometheus/alerts_test.yml: each fires when it should, and not when its opposite would.

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestAlertsFire(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs", "prometheus", "alerts_test.yml"))
	if err != nil {
		t.Fatal(err)
	}
	tests := string(b)
	expression := regexp.MustCompile(`(?m)^      - alert: (\w+)\n        expr: (.*)$`)
	t.Run("as they are", func(t *testing.T) {
		t.Parallel()
		for _, file := range rules() {
			if out, err := promtool(t, "check", "rules", filepath.Join(root, file)); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		if out, err := replay(t, tests, func(rules string) string { return rules }); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("their opposites", func(t *testing.T) {
		t.Parallel()
		var alerts []string
		out, err := replay(t, tests, func(rules string) string {
			for _, alert := range expression.FindAllStringSubmatch(rules, -1) {
				if alerts = append(alerts, alert[1]); !strings.Contains(tests, "alertname: "+alert[1]+"\n") {
					t.Errorf("%s is not tried", alert[1])
				}
				opposite := strings.NewReplacer(" > ", " < ", " == ", " != ").Replace(alert[2])
				rules = strings.Replace(rules, "expr: "+alert[2], "expr: "+opposite, 1)
			}
			return rules
		})
		if len(alerts) < 30 {
			t.Fatalf("only %d rules", len(alerts))
		}
		for _, alert := range alerts {
			if err == nil || !strings.Contains(out, "alertname: "+alert+",") {
				t.Errorf("the opposite of %s passes its test: %v", alert, err)
			}
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

// The rules by made-up series, docs/prometheus/alerts_test.yml and slo_test.yml: each fires when it should, and not when its
// opposite would.

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestAlertsFire(t *testing.T) {
	alert := regexp.MustCompile(`(?m)^      - alert: (\w+)\n        expr: (.*)$`)
	for _, file := range rules() {
		file = filepath.Join(root, file)
		b, err := os.ReadFile(strings.TrimSuffix(file, ".yml") + "_test.yml")
		if err != nil {
			t.Fatal(err)
		}
		tests := string(b)
		if b, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
		alerts := alert.FindAllStringSubmatch(string(b), -1)
		if len(alerts) < 3 {
			t.Fatalf("%s has only %d alerts", file, len(alerts))
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			if out, err := promtool(t, "check", "rules", file); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if out, err := replay(t, tests, func(rules string) string { return rules }); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
		t.Run("the opposites of "+filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			out, err := replay(t, tests, func(rules string) string {
				for _, a := range alerts {
					opposite := strings.NewReplacer(" > ", " < ", " == ", " != ").Replace(a[2])
					rules = strings.Replace(rules, "expr: "+a[2], "expr: "+opposite, 1)
				}
				return rules
			})
			for _, a := range alerts {
				if err == nil || !strings.Contains(out, "alertname: "+a[1]+",") {
					t.Errorf("%s is not tried, or its opposite passes its test: %v", a[1], err)
				}
			}
		})
	}
}

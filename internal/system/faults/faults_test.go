// SPDX-License-Identifier: Apache-2.0

// The operator on runbooks of a few lines, the catalogue beside the real one, and games that are not played twice.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const root = "../../.."

const sample = "# Runbook\n\n" + `
## First steps

Prose with **bold** words.

1. Check.

   BLOCKone
   END

   → [Hung](#hung). Other text.
2. Look.

   BLOCKtwo
   END

   ^reason^ = ^closed^ → **traffic**. Do this.

   ^reason^ = ^queueing^ or ^busy^ → [Loop](#loop-a-b).

   No result → **healthy**.

## Hung

1. Prose that goes nowhere.

   BLOCKthree
   END

   No result → **Nothing hangs.** Leave it.

   BLOCKfour
   or five
   END

   → **hung handlers** of one route. Go to [Loop](#loop-a-b).
2. Take the steps of [Loop](#loop-a-b).

## Loop: a/b

Go to [Hung](#hung).

## StopbankPages

1. Check.

   BLOCKpages
   END

   → **paged**.

## StopbankTickets

1. Check.

   BLOCKtickets
   END

   ^reason^ = ^late^ → **late**.

   → **over**.
`

func markdown(s string) string {
	return strings.NewReplacer("^", "`", "BLOCK", "```promql\n   ", "   END", "   ```").Replace(s)
}

func TestWalk(t *testing.T) {
	runbook, err := parse(strings.ReplaceAll(markdown(sample), "#loop-a-b", "#loop-ab"))
	if err != nil {
		t.Fatal(err)
	}
	page := alert{"StopbankPages", "page", labels{"alertname": "StopbankPages", "instance": "a", "pool": "p"}, time.Unix(20, 0)}
	older := alert{"StopbankTickets", "ticket", labels{"instance": "old"}, time.Unix(10, 0)}
	for what, c := range map[string]struct {
		alerts []alert
		series map[string][]labels
		want   string // name, labels and start; "": nothing
	}{
		"nothing":                 {nil, nil, ""},
		"a link, then a name":     {nil, map[string][]labels{"one": {{"x": "1"}}, "three": {{}}, "four\nor five": {{"y": "2"}, {"y": "3"}}}, "hung handlers y=2 first-steps"},
		"no result is a branch":   {nil, map[string][]labels{"one": {{"x": "1"}}, "four\nor five": {{}}}, "nothing hangs x=1 first-steps"},
		"a loop ends":             {nil, map[string][]labels{"one": {{}}, "three": {{}}}, ""},
		"a label decides":         {nil, map[string][]labels{"two": {{"reason": "other"}, {"reason": "closed", "i": "2"}}}, "traffic i=2 reason=closed first-steps"},
		"one of several values":   {nil, map[string][]labels{"two": {{"reason": "busy"}}, "three": {{}}, "four\nor five": {{}}}, "hung handlers first-steps"},
		"no value fits":           {nil, map[string][]labels{"two": {{"reason": "other"}}}, ""},
		"labels of the alert":     {[]alert{page}, map[string][]labels{"pages": {{"instance": "b"}}}, "paged instance=b pool=p StopbankPages"},
		"pages first":             {[]alert{older, page}, map[string][]labels{"pages": {{}}, "tickets": {{"reason": "late"}}}, "paged instance=a pool=p StopbankPages"},
		"what is over names none": {[]alert{older}, map[string][]labels{"tickets": {{}}, "two": {{"reason": "closed"}}}, "traffic reason=closed first-steps"},
	} {
		o := operator{runbook, func(_ context.Context, query string) ([]labels, error) { return c.series[query], nil }}
		got, ok, err := o.look(t.Context(), c.alerts)
		said := ""
		if ok {
			said = got.Name + got.Labels.short() + " " + got.From
		}
		if err != nil || said != c.want {
			t.Errorf("%s: %q, want %q, %v\n%s", what, said, c.want, err, strings.Join(got.Path, "\n"))
		}
	}
	failing := operator{runbook, func(context.Context, string) ([]labels, error) { return nil, os.ErrDeadlineExceeded }}
	if _, _, err := failing.look(t.Context(), nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	if _, _, err := failing.look(t.Context(), []alert{{Name: "Unknown"}}); err == nil || !strings.Contains(err.Error(), "#unknown") {
		t.Error(err)
	}
}

func TestRunbooksThatCannotBeFollowed(t *testing.T) {
	for want, text := range map[string]string{
		"no section #nowhere":      "## First steps\n\n1. Go to [There](#nowhere).\n",
		"a branch without a query": "## First steps\n\n1. Look.\n\n   → **bad**.\n",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// names are all that a runbook can name.
func names(runbook map[string]*section) map[string]bool {
	all := map[string]bool{}
	for _, s := range runbook {
		for _, st := range s.steps {
			for _, q := range st.queries {
				for _, b := range q.branches {
					all[b.name] = true
				}
			}
		}
	}
	return all
}

// The runbook can be followed from each alert, names what the catalogue calls right, and each fault can be played.
func TestCatalogue(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	alerts := 0
	for _, file := range []string{"alerts.yml", "slo.yml"} {
		b, err := os.ReadFile(filepath.Join(root, "docs", "prometheus", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(b), -1) {
			if alerts++; runbook[strings.ToLower(m[1])] == nil {
				t.Errorf("the runbook has no section %s", m[1])
			}
		}
	}
	known, seen := names(runbook), map[string]bool{}
	for _, f := range append(catalogue(), heldout()...) {
		if seen[f.name] || f.about == "" || !regexp.MustCompile(`^[a-z-]+$`).MatchString(f.name) {
			t.Errorf("%q: its name is not one of its own, or nothing tells about it", f.name)
		}
		seen[f.name] = true
		if f.ill == "" && f.task == "" && f.hook == nil && f.load == nil {
			t.Errorf("%s: nothing is injected", f.name)
		}
		for _, name := range f.named {
			if !known[name] {
				t.Errorf("%s: the runbook names no %q", f.name, name)
			}
		}
	}
	if alerts < 30 || len(seen) < 20 || len(known) < 30 {
		t.Errorf("only %d alerts, %d faults and %d names", alerts, len(seen), len(known))
	}
	if runbook[firstSteps] == nil {
		t.Error("the runbook has no first steps")
	}
}

func TestRight(t *testing.T) {
	f := fault{named: []string{"a", "b"}, want: []string{"instance", "compartment=checkout"}}
	ill := labels{"instance": "1"}
	for want, said := range map[bool][]named{
		true: {{Name: "b", Labels: labels{"instance": "1", "compartment": "checkout", "x": "y"}}},
		false: {
			{Name: "c", Labels: labels{"instance": "1", "compartment": "checkout"}},
			{Name: "a", Labels: labels{"instance": "2", "compartment": "checkout"}},
			{Name: "a", Labels: labels{"instance": "1"}},
		},
	} {
		for _, s := range said {
			if f.right(&s, ill) != want {
				t.Errorf("%v is %v", s, !want)
			}
		}
	}
}

// What has a result is not played again unless it is named, and results survive the process.
func TestResume(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a", "results.json")
	results, err := read(file)
	if err != nil || len(results) != 0 {
		t.Fatal(results, err)
	}
	results["leak"] = result{Right: true, Named: &named{Name: "x", Labels: labels{"instance": "1"}}, Minutes: 1.5}
	if err := write(file, results); err != nil {
		t.Fatal(err)
	}
	again, err := read(file)
	if diff := cmp.Diff(results, again); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	chosen, err := choose([]string{"locked", "leak"})
	if err != nil || len(chosen) != 2 || len(pending(chosen, again, true)) != 2 {
		t.Errorf("%d of two faults, %v", len(chosen), err)
	}
	if left := pending(chosen, again, false); len(left) != 1 || left[0].name != "locked" {
		t.Errorf("%d are left to be played", len(left))
	}
	if all, err := choose(nil); err != nil || len(all) != len(catalogue()) {
		t.Errorf("%d faults without a name, %v", len(all), err)
	}
	if _, err := choose([]string{"leak", "z"}); err == nil {
		t.Error("it plays what it does not know")
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := read(file); err == nil {
		t.Error("it reads what is no result")
	}
}

// A miss, a page in health and a fault that was not played stand on the page.
func TestReport(t *testing.T) {
	faults := catalogue()
	hard := len(slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return f.calm }))
	all := map[string]result{}
	for i, f := range faults[:3] {
		all[f.name] = result{Right: i > 0, Minutes: float64(i) + 1, First: "X", Alerted: 4, False: []string{"page X"}}
	}
	page := report(all)
	for _, text := range []string{
		fmt.Sprintf("| 2 of %d | 2.5 minutes | 3 | 4.0 minutes | 3 |", hard), "`" + faults[0].name + "` was **missed**",
		"`" + faults[3].name + "` was not played",
	} {
		if !strings.Contains(page, text) {
			t.Errorf("%q is missing:\n%s", text, page)
		}
	}
}

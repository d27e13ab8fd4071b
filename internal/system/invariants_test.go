package system

// Every numbered invariant has a test that names it, and every number that a test names is defined.
//
// A page of docs/ defines a number where a line begins with it as a bold item of a list:
//
//	- **A1** In-flight never exceeds the limit.
//
// A test holds it that carries the number in its name, after what kind of test it is and before an underscore or the
// end; one test may hold several: TestA3_ReleaseTwice, TestPropertyL2_Order, FuzzC4. Files are read whatever their
// build tags say. A machine, TestPropertyA1A2_Machine, says by which of its numbers it fails: each begins a message.

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layers are the letters and the directories that keep the promises which each of them numbers.
var layers = map[byte][]string{
	'A': {"admission"}, 'L': {"lease"}, 'M': {"warden/monitor"}, 'C': {"warden/control", "internal/sim"}, 'Q': {"warden/limiter", "warden/internal/queue"},
	'B': {"warden/bulkhead"}, 'D': {"lease/dispatch"}, 'H': {"warden/wardenhttp", "admission/admissionhttp/inflight"},
	'R': {"warden/retry", "warden/wardenhttp", "warden/wardengrpc"},
}

var (
	definition = regexp.MustCompile(`(?m)^- \*\*([A-Z]\d+)\*\*`)
	testName   = regexp.MustCompile(`(?m)^func (?:Test|Fuzz)(?:Property|Fuzz|Race|Stress)?((?:[ALMCQBDHR]\d+_?)+)(?:_\w*)?\(`)
	machine    = regexp.MustCompile(`^func TestProperty(?:[A-Z]\d+){2,}_Machine`)
	number     = regexp.MustCompile(`[A-Z]\d+`)
)

// checkInvariants compares the pages with the tests; both are texts by path.
func checkInvariants(pages, tests map[string]string) []string {
	var findings []string
	found := func(format string, args ...any) { findings = append(findings, fmt.Sprintf(format, args...)) }

	defined, held := map[string]string{}, map[string]bool{}
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		for _, m := range definition.FindAllStringSubmatch(pages[page], -1) {
			n := m[1]
			if layers[n[0]] == nil {
				found("%s: %s: no layer has this letter", page, n)
			}
			if first, twice := defined[n]; twice {
				found("%s: %s is already defined in %s", page, n, first)
			}
			defined[n] = page
		}
	}
	for _, file := range slices.Sorted(maps.Keys(tests)) {
		for _, m := range testName.FindAllStringSubmatch(tests[file], -1) {
			for _, n := range number.FindAllString(m[1], -1) {
				if defined[n] == "" {
					found("%s: %s: no page defines %s", file, strings.TrimSuffix(m[0], "("), n)
				}
				if machine.MatchString(m[0]) && !says(tests, path.Dir(file), n) {
					found("%s: %s: no failure begins with %s", file, strings.TrimSuffix(m[0], "("), n)
				}
				// A promise is held where it is kept; elsewhere it may be tested once more.
				held[n] = held[n] || slices.ContainsFunc(layers[n[0]], func(dir string) bool { return strings.HasPrefix(file, dir+"/") })
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(defined)) {
		if dirs := layers[n[0]]; dirs != nil && !held[n] {
			found("%s: no test under %s names %s", defined[n], strings.Join(dirs, " or "), n)
		}
	}
	return findings
}

// says is whether a string in the tests of dir begins with the number n, or is it.
func says(tests map[string]string, dir, n string) bool {
	for file, text := range tests {
		if path.Dir(file) == dir && (strings.Contains(text, `"`+n+`: `) || strings.Contains(text, `"`+n+`"`)) {
			return true
		}
	}
	return false
}

func TestInvariants(t *testing.T) {
	pages, tests := map[string]string{}, map[string]string{}
	walk(t, root(t), func(file string) {
		switch {
		case path.Dir(file) == "docs" && strings.HasSuffix(file, ".md"):
			pages[file] = read(t, root(t), file)
		case strings.HasSuffix(file, "_test.go"):
			tests[file] = read(t, root(t), file)
		}
	})
	if len(pages) == 0 || len(tests) == 0 {
		t.Fatalf("%d pages, %d test files", len(pages), len(tests))
	}
	report(t, checkInvariants(pages, tests))
}

func TestInvariantsFind(t *testing.T) {
	mustFind(t, checkInvariants(
		map[string]string{
			"docs/admission.md": "- **A1** Held.\n- **A2** Held with others.\n- **A3** Held by a fuzz target.\n- **A4** Not held.\n" +
				"- **A5** Held under a build tag.\n - **A6** no definition\nA **A7** no definition\n- **A8** held elsewhere\n- **A10** Held.\n",
			"docs/lease.md":      "# Lease\n- **L1** Held in another module below.\n- **A1** Twice.\n",
			"docs/runbook.md":    "- **X1** No letter.\n",
			"docs/wardenhttp.md": "- **H1** Held here.\n- **H2** Held there.\n- **H3** Not held.\n",
		},
		map[string]string{
			"admission/gate_test.go":        "func TestA1_Limit(t *testing.T) {\nfunc TestPropertyA2A10_Machine(t *testing.T) {\n\"A2: wrong\"\nfunc FuzzA3(f *testing.F) {\n",
			"admission/race_test.go":        "//go:build race\nfunc TestRaceA1A5(t *testing.T) {\n",
			"admission/more_test.go":        "func TestA9_Gone(t *testing.T) {\nfunc TestAll(t *testing.T) {\nfunc TestA4a(t *testing.T) {\nfunc helperA4_(t *testing.T) {\n",
			"examples/use_test.go":          "func TestA8_Elsewhere(t *testing.T) {\n",
			"lease/leasetest/order_test.go": "func TestPropertyL1_L7_Order(t *testing.T) {\n",

			"warden/wardenhttp/handler_test.go":               "func TestH1_Here(t *testing.T) {\n",
			"admission/admissionhttp/inflight/hijack_test.go": "func TestH2_There(t *testing.T) {\n",
			"admission/admissionhttp/handler_test.go":         "func TestH3_Elsewhere(t *testing.T) {\n",
		}),
		"admission/gate_test.go: func TestPropertyA2A10_Machine: no failure begins with A10",
		"docs/admission.md: no test under admission names A4",
		"docs/admission.md: no test under admission names A8",
		"docs/lease.md: A1 is already defined in docs/admission.md",
		"docs/runbook.md: X1: no layer has this letter",
		"docs/wardenhttp.md: no test under warden/wardenhttp or admission/admissionhttp/inflight names H3",
		"admission/more_test.go: func TestA9_Gone: no page defines A9",
		"lease/leasetest/order_test.go: func TestPropertyL1_L7_Order: no page defines L7",
	)
}

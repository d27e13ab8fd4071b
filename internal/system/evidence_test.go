package system

// Every test that a page of docs/evidence names exists, so that renaming one does not leave the page behind.

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	namedTest    = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`)
	declaredTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
)

// checkEvidence compares the pages, texts by path, with the names of the tests.
func checkEvidence(pages map[string]string, tests map[string]bool) []string {
	var findings []string
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		names := namedTest.FindAllString(pages[page], -1)
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			if !tests[name] {
				findings = append(findings, page+": no test is named "+name)
			}
		}
	}
	return findings
}

func TestPagesOfEvidence(t *testing.T) {
	pages, tests := map[string]string{}, map[string]bool{}
	walk(t, root(t), func(file string) {
		switch {
		case path.Dir(file) == "docs/evidence" && path.Ext(file) == ".md":
			pages[file] = read(t, root(t), file)
		case strings.HasSuffix(file, "_test.go"):
			for _, m := range declaredTest.FindAllStringSubmatch(read(t, root(t), file), -1) {
				tests[m[1]] = true
			}
		}
	})
	if !namedTest.MatchString(pages["docs/evidence/mutants.md"]) || len(tests) == 0 {
		t.Fatalf("%d pages, %d tests, and mutants.md names none", len(pages), len(tests))
	}
	report(t, checkEvidence(pages, tests))
}

func TestPagesOfEvidenceFind(t *testing.T) {
	mustFind(t, checkEvidence(
		map[string]string{"docs/evidence/mutants.md": "| A1 | broken | TestA1_Limit, TestA1_Gone, FuzzA1 |\n| A1 | again | TestA1_Gone |\nTests and Testing.\n"},
		map[string]bool{"TestA1_Limit": true, "TestA1": true},
	),
		"docs/evidence/mutants.md: no test is named TestA1_Gone",
		"docs/evidence/mutants.md: no test is named FuzzA1",
	)
}

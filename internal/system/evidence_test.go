// SPDX-License-Identifier: Apache-2.0

package system

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// provenance is a row of a page's last table, which internal/system/made writes.
var provenance = regexp.MustCompile("^\\| 20\\d\\d-\\d\\d-\\d\\d \\| [0-9a-f]{7,40}\\+? \\| go\\S+ \\w+/\\w+, \\d+ processors, [^|]+ \\| \\d+ \\| ([\\d.]+|unknown) \\| `make [a-z-]+( [^`]*)?` \\|$")

// TestEvidence: a page of evidence says when, from which commit, where, for how long and by which command it was measured, and
// what was not.
func TestEvidence(t *testing.T) {
	byHand := []string{"comparison.md", "control-experiments.md"} // what was tried at several times, and what others' sources say
	byAnother := []string{"first-seconds.md"}                     // overload.md's runs write it too
	pages := 0
	walk(t, func(file string) {
		name := path.Base(file)
		if path.Dir(file) != "docs/evidence" || path.Ext(file) != ".md" || slices.Contains(slices.Concat(byHand, byAnother), name) {
			return
		}
		pages++
		text := read(t, file)
		if !strings.Contains(text, "## Not measured\n") {
			t.Errorf("%s: has no section \"Not measured\"", file)
		}
		_, runs, _ := strings.Cut(text, "\n## Runs\n")
		rows := strings.Split(strings.TrimSpace(runs), "\n")
		if len(rows) < 3 {
			t.Errorf("%s: has no rows in a section \"Runs\" at its end", file)
			return
		}
		for _, row := range rows[2:] {
			if !provenance.MatchString(row) {
				t.Errorf("%s: not a run: %s", file, row)
			}
		}
	})
	if pages < 10 {
		t.Errorf("%d pages", pages)
	}
}

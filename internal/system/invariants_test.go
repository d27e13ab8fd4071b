// SPDX-License-Identifier: Apache-2.0

package system

// Every numbered invariant stands in the failure text of a test, and every number in one is defined.
//
// A page of docs/guarantees defines a number where a line begins with it as a bold item of a list:
//
//	- **A1** In-flight never exceeds the limit.
//
// A test file carries it in a string that contains "A1: ", or that is "A1" where a machine looks up what it says. Files are read
// whatever their build tags say. `make mutants` lists the numbers that failures say.

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	definition = regexp.MustCompile(`(?m)^- \*\*([A-Z]\d+)\*\*`)
	said       = regexp.MustCompile(`"(?:[^"\n]*?\b)?([A-Z]\d+)(?:: |")`)
)

func TestInvariants(t *testing.T) {
	defined, carried, letters := map[string]string{}, map[string]string{}, map[byte]bool{}
	walk(t, func(file string) {
		switch {
		case path.Dir(file) == "docs/guarantees" && path.Ext(file) == ".md":
			for _, m := range definition.FindAllStringSubmatch(read(t, file), -1) {
				if first := defined[m[1]]; first != "" {
					t.Errorf("%s: %s is already defined in %s", file, m[1], first)
				}
				defined[m[1]], letters[m[1][0]] = file, true
			}
		case strings.HasSuffix(file, "_test.go"):
			for _, m := range said.FindAllStringSubmatch(read(t, file), -1) {
				carried[m[1]] = file
			}
		}
	})
	for number, page := range defined {
		if carried[number] == "" {
			t.Errorf("%s: no failure of a test says %q", page, number+": ")
		}
	}
	for number, file := range carried {
		if letters[number[0]] && defined[number] == "" {
			t.Errorf("%s: no page defines %s", file, number)
		}
	}
}

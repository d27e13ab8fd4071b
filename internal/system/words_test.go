// SPDX-License-Identifier: Apache-2.0

package system

// The pages stay short enough to be read: their words by hand are bounded.

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// maxWords is how many words all pages together may have that somebody wrote by hand: 26,000, and what is said of the time of a
// request since (H34, H35).
const maxWords = 26_400

// generated is a section that a make target writes, between its markers.
var generated = regexp.MustCompile(`(?s)<!-- begin: make [^>]*-->.*?<!-- end: make [^>]*-->`)

// words are those of a page that somebody wrote by hand: what spaces separate and has a letter or a digit. The rest is generated,
// or a program, a query, a command or its output, which other tests look at.
func words(page string) (n int) {
	for w := range strings.FieldsSeq(fence.ReplaceAllString(generated.ReplaceAllString(page, ""), "")) {
		if strings.ContainsFunc(w, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			n++
		}
	}
	return n
}

func TestWords(t *testing.T) {
	const page = "# Two words\n\n| a | table |\n|---|---|\n\n```go\nfunc main() {}\n```\n\n" +
		"<!-- begin: make metrics x -->\nmany words\n<!-- end: make metrics -->\n- last 1\n"
	if n := words(page); n != 6 {
		t.Errorf("%d words, want 6", n)
	}
	total, by := 0, map[string]int{}
	walk(t, func(file string) {
		written := strings.HasPrefix(file, "docs/evidence/") || file == "docs/reference.md" || file == "docs/packages.md"
		if strings.HasSuffix(file, ".md") && (file == "README.md" || strings.HasPrefix(file, "docs/")) && !written {
			by[file] = words(read(t, file))
			total += by[file]
		}
	})
	if len(by) < 30 {
		t.Errorf("only %d pages", len(by))
	}
	if total > maxWords {
		largest := slices.SortedFunc(maps.Keys(by), func(a, b string) int { return by[b] - by[a] })[:10]
		var list strings.Builder
		for _, file := range largest {
			fmt.Fprintf(&list, "\n%6d %s", by[file], file)
		}
		t.Errorf("the pages have %d words, more than %d; the largest:%s", total, maxWords, list.String())
	}
}

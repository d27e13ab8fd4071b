// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A command replaces its own row and keeps those of others, also where it has written the page anew.
func TestNote(t *testing.T) {
	const row, again = "| 2026-01-01 | abc | go | 1 | 0.1 | `make a` |", "| 2026-01-02 | def | go | 12 | 0.2 | `make a` |"
	const other = "| 2026-01-01 | abc | go | 3 | 0.1 | `make b` |"
	first := run{"2026-01-01", "abc", "go", "0.1", "make a", 0.2}
	rendered := run{"2026-01-02", "def", "go", "0.2", "make a A='-render'", 1}
	second := run{"2026-01-02", "def", "go", "0.2", "make a", 12.4}
	for _, c := range []struct {
		name, before, after string
		run                 run
		want                string
	}{
		{"the first row", "# A\n", "# A\n\nnew\n", first, "# A\n\nnew\n" + table + row + "\n"},
		{"another command's", "# A\n" + table + other + "\n", "# A\n" + table + other + "\n", first, "# A\n" + table + other + "\n" + row + "\n"},
		{"its own again, on a new page", "# A\n" + table + row + "\n" + other + "\n", "# B\n", second, "# B\n" + table + other + "\n" + again + "\n"},
		{"a page that was only written again", "# A\n" + table + row + "\n", "# B\n", rendered, "# B\n" + table + row + "\n"},
	} {
		if diff := cmp.Diff(c.want, note(c.before, c.after, c.run)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

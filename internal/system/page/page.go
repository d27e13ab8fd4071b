// SPDX-License-Identifier: Apache-2.0

// Package page replaces the table in a page of evidence that is otherwise written by hand.
package page

import (
	"fmt"
	"os"
	"strings"
)

const begin, end = "<!-- table -->\n", "<!-- end of table -->\n"

// Write replaces what is between two marks of a page.
func Write(file, table string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no %q … %q", file, begin, end)
	}
	return os.WriteFile(file, []byte(before+begin+table+end+after), 0o644) //nolint:gosec // it is public
}

// SPDX-License-Identifier: Apache-2.0

package page

import (
	"os"
	"path/filepath"
	"testing"
)

// What is around the marks stays, and without them nothing is written.
func TestWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	for before, want := range map[string]string{
		"a\n" + begin + "old\n" + end + "b\n": "a\n" + begin + "new\n" + end + "b\n",
		"a\n" + begin + "old\n":               "",
		"a\n" + end + "b\n" + begin:           "",
	} {
		if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		err := Write(file, "new\n")
		got, _ := os.ReadFile(file)
		if (err == nil) != (want != "") || err == nil && string(got) != want || err != nil && string(got) != before {
			t.Errorf("%q became %q, %v", before, got, err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

// What is kept of a text.

package clip_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease/internal/clip"
)

func TestPropertyClip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "text"))
		got := clip.Text(text)
		if len(got) > 1024 || !utf8.ValidString(got) || strings.ContainsRune(got, 0) || clip.Text(got) != got {
			t.Fatalf("%q became %q", text, got)
		}
		if whole := utf8.ValidString(text) && len(text) <= 1024 && !strings.ContainsRune(text, 0); whole && got != text {
			t.Fatalf("%q became %q without need", text, got)
		}
	})
}

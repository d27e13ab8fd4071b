// SPDX-License-Identifier: Apache-2.0

// Package clip cuts texts of failures and notes to what every store of dead letters can keep.
package clip

import "strings"

// most is how many bytes of a text are kept.
const most = 1024

// Text returns the part of a text that is kept: valid UTF-8 without zero bytes, at most 1,024 bytes.
func Text(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text[:min(len(text), 2*most)], "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

// Values of labels that others make up.

package wardenprom

import "strings"

// clean is s as a label can have it: valid UTF-8, not long. Line breaks and quotes are the text format's own business.
func clean(s string) string {
	if len(s) > longestLabel {
		s = s[:longestLabel]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

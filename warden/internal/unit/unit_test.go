// SPDX-License-Identifier: Apache-2.0

// A duration without a unit is refused, and the text says what was probably meant.

package unit

import (
	"testing"
	"time"
)

func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		d, least, most time.Duration
		want           string
	}{
		{0, Network, 0, ""}, {Network, Network, 0, ""}, {time.Hour, Network, time.Hour, ""},
		{-1, Network, 0, "0 (none), or 1ms or more"},
		{500, Network, 0, "0 (none), or 1ms or more; did you mean 500ms?"},
		{5000, Process, time.Minute, "0 (none), or 10µs to 1m; did you mean 5s?"},
		{Network - 1, Network, time.Hour, "0 (none), or 1ms to 1h"},
		{time.Hour + 1, Process, time.Hour, "0 (none), or 10µs to 1h"},
	} {
		if got := Allowed(c.d, c.least, c.most, "0 (none)"); got != c.want {
			t.Errorf("%v: %q, want %q", c.d, got, c.want)
		}
	}
}

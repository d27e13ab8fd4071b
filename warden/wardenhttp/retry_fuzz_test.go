// SPDX-License-Identifier: Apache-2.0

// Headers from anybody: whatever they say, the wait that is read is between nothing and a day.

package wardenhttp

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "0", "1", "120", "-1", "+1", " 1", "1.5", "1e3", "4294967296", "99999999999999999999",
		strings.Repeat("9", 64), strings.Repeat("9", 65),
		"Fri, 31 Dec 1999 23:59:59 GMT", "Friday, 31-Dec-99 23:59:59 GMT", "Fri Dec 31 23:59:59 1999",
		"Fri, 31 Dec 9999 23:59:59 GMT", "tomorrow", "\x00"} {
		f.Add(s, "")
		f.Add(s, "Fri, 31 Dec 1999 23:59:00 GMT")
	}
	f.Fuzz(func(t *testing.T, s, date string) {
		now := time.Date(1999, 12, 31, 23, 0, 0, 0, time.UTC)
		h := http.Header{"Retry-After": {s}, "Date": {date}}
		d := retryAfter(h, now)
		if d < 0 || d > 24*time.Hour {
			t.Fatalf("R5: %q: %s", s, d)
		}
		if strings.Trim(s, "0123456789") == "" && len(s) < 5 && s != "" {
			want, err := time.ParseDuration(s + "s")
			if err != nil || d != want {
				t.Fatalf("R5: %q: %s", s, d)
			}
		}
		if h.Add("Retry-After", s); retryAfter(h, now) != 0 {
			t.Fatalf("R5: %q twice is read", s)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(1999, 12, 31, 23, 0, 0, 0, time.UTC)
	for s, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "-7": 0, "+7": 0, " 7": 0, "7.5": 0, "86401": 24 * time.Hour,
		"99999999999999999999":          24 * time.Hour,
		"Fri, 31 Dec 1999 23:00:30 GMT": 30 * time.Second, "Fri, 31 Dec 1999 22:00:00 GMT": 0,
		"Sat, 01 Jan 2005 00:00:00 GMT": 24 * time.Hour, "soon": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {s}}, now); got != want {
			t.Errorf("R5: %q: %s, want %s", s, got, want)
		}
	}
	// The server's clock is an hour ahead: its own Date says so.
	ahead := http.Header{"Retry-After": {"Sat, 01 Jan 2000 00:00:05 GMT"}, "Date": {"Sat, 01 Jan 2000 00:00:00 GMT"}}
	if got := retryAfter(ahead, now); got != 5*time.Second {
		t.Errorf("R5: with the server's clock: %s, want 5s", got)
	}
}

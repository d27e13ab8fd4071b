// What each kind of work certainly needs: a limiter compares it with the time that is left until a deadline.

package control

import (
	"time"

	"github.com/stopbank/stopbank/warden/monitor"
)

// needs (C16) returns what a sample tells of them, in the map of before if that still says so. What cannot be is not known.
func needs(before map[string]time.Duration, s monitor.Service) map[string]time.Duration {
	n, same := 0, true
	for _, k := range &s.Needs {
		if k.Time > 0 {
			n++
			same = same && before[k.Name] == k.Time
		}
	}
	if same && n == len(before) {
		return before
	}
	now := make(map[string]time.Duration, n)
	for _, k := range &s.Needs {
		if k.Time > 0 {
			now[k.Name] = k.Time
		}
	}
	return now
}

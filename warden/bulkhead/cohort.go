// SPDX-License-Identifier: Apache-2.0

// How long the oldest function has run, at least (B16). Functions are counted by the tenth of a second in which they began, so a
// call adds to a number and takes from it, and keeps no time.

package bulkhead

import (
	"slices"
	"time"
)

// lookEvery is how often, at most, a look closes a cohort.
const lookEvery = 100 * time.Millisecond

// cohort counts the running functions that began between two looks.
type cohort struct {
	running int
	seen    time.Duration // when the second look was, so all of them run since then at least
}

// cohorts are those of one pool, guarded by Set.mu. They are no more than functions run, and one.
type cohorts struct {
	open   *cohort   // of the functions that begin now
	closed []*cohort // the oldest first; some may be empty
}

// look closes the open cohort.
func (all *cohorts) look(now time.Duration) {
	if n := len(all.closed); all.open.running == 0 || n > 0 && now-all.closed[n-1].seen < lookEvery {
		return
	}
	all.open.seen = now
	all.closed = append(slices.DeleteFunc(all.closed, func(c *cohort) bool { return c.running == 0 }), all.open)
	all.open = new(cohort)
}

// oldest returns for how long the oldest function has run, at least; 0: none was seen.
func (all *cohorts) oldest(now time.Duration) time.Duration {
	for _, c := range all.closed {
		if c.running > 0 {
			return max(0, now-c.seen)
		}
	}
	return 0
}

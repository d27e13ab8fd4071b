// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The reference: a non-preemptive priority queue that knows when each client leaves and what each request costs.

package main

import (
	"slices"
	"time"
)

// replay runs the requests through that queue at perSecond mean requests per second, one at a time, or per connection.
// It serves critical requests first, in order within a priority, and starts none that would be late.
func replay(all []request, g *group, perSecond float64) []request {
	w, patience := &g.work, g.patience()
	servers, after := 1, w.wait // the wait between two pieces of computing occupies no processor
	if w.connections > 0 {
		servers, after = w.connections, 0
	}
	out := make([]request, len(all))
	free := make([]int64, servers) // time at which each becomes free
	var queues [2][]int            // critical, other
	next := 0
	for {
		now := slices.Min(free)
		first := slices.Index(free, now)
		if len(queues[0])+len(queues[1]) == 0 {
			if next == len(all) {
				return out
			}
			now = max(now, all[next].due)
		}
		for ; next < len(all) && all[next].due <= now; next++ {
			out[next] = request{due: all[next].due, sent: all[next].due, critical: all[next].critical, heavy: all[next].heavy,
				counted: all[next].counted}
			q := &queues[1]
			if all[next].critical {
				q = &queues[0]
			}
			*q = append(*q, next)
		}
		q := &queues[0]
		if len(*q) == 0 {
			q = &queues[1]
		}
		r := &out[(*q)[0]]
		*q = (*q)[1:]
		cost := int64(w.weight(r.heavy) * float64(servers) / perSecond * float64(time.Second))
		if done := now + cost + int64(after); done <= r.overdue(patience) {
			r.status, r.done, free[first] = 200, done, now+cost
		}
	}
}

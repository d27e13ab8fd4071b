// SPDX-License-Identifier: Apache-2.0

// Requests that never end beside work that does, and work that goes on behind a freed slot.

package sim

import (
	"fmt"
	"testing"
)

// Whatever number of requests never ends, from the start on or later, the rest is answered as if there were none, from the fifth
// second after they came on.
func TestHoldersLeaveTheRestAlone(t *testing.T) {
	for _, holders := range []int{16, 64, 400} {
		for _, from := range []float64{0, 15} {
			w := &World{Seed: 3, Cores: 4, Shape: "steady", Length: 30, Warm: from + 5, Cut: true, Holders: holders, From: from,
				Kinds: []Kind{work(ms, 40*ms)}}
			w.Peak = 400
			r := try(t, w, Ours, false)
			if share := r.Warm.Share(); share < 0.95 {
				t.Errorf("C8: %s: %.3f of the others are answered; the limit was %d to %d",
					fmt.Sprintf("%d holders from %v s on", holders, from), share, r.Least, r.Most)
			}
		}
	}
}

// A reverse proxy before an upstream of four workers that finish what nobody waits for any more, cold, at twice what they can do:
// from the fifth second on it answers what it would at the best constant limit.
func TestWorkBehindAFreedSlot(t *testing.T) {
	for seed := range uint64(20) {
		w := &World{Seed: seed, Cores: 4, Places: 4, Shape: "steady", Length: 20.4, Warm: 5, Cut: true, Kinds: []Kind{{
			Of: 1, Service: 0.04, Share: 0.002, Spread: "exponential", Patience: 0.4, Knows: "told", Critical: 0.2, Normal: 0.8,
			Outlives: true, Deaf: true,
		}}}
		w.Retry.Attempts = 1
		w.Peak = 2 * w.capacity(0)
		best := 0
		for _, limit := range []int{4, 5, 6, 8} {
			best = max(best, try(t, w, Static(limit), false).Warm.Good)
		}
		if r := try(t, w, Ours, false); float64(r.Warm.Good) < 0.9*float64(best) {
			t.Errorf("C17: seed %d: %d are answered, and %d at the best constant limit; the limit was %d to %d", seed, r.Warm.Good, best,
				r.Least, r.Most)
		}
	}
}

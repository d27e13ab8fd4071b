// Requests that never end, beside work that does.

package sim

import (
	"fmt"
	"testing"
)

// Whatever number of requests never ends, from the start on or later, the rest is answered as if there were none, from the fifth second
// after they came on.
func TestHoldersLeaveTheRestAlone(t *testing.T) {
	for _, holders := range []int{16, 64, 400} {
		for _, from := range []float64{0, 15} {
			w := &World{Seed: 3, Cores: 4, Shape: "steady", Length: 30, Warm: from + 5, Cut: true, Holders: holders, From: from, Kinds: []Kind{work(ms, 40*ms)}}
			w.Peak = 400
			r := try(t, w, Ours, false)
			if share := r.Warm.Share(); share < 0.95 {
				t.Errorf("C8: %s: %.3f of the others are answered; the limit was %d to %d", fmt.Sprintf("%d holders from %v s on", holders, from), share, r.Least, r.Most)
			}
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package group_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease/internal/group"
)

// However the partitions are spread, the shares are all of them and as even as can be, and whoever has a share already keeps it:
// once the members that hold too much have given the rest back and the others have taken it, nothing moves any more.
func TestPropertyShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		holds := rapid.MapOfN(rapid.Uint32(), rapid.IntRange(0, 30), 1, 9).Draw(t, "holds")
		total := rapid.IntRange(0, 30).Draw(t, "free")
		for _, n := range holds {
			total += n
		}
		for round := range 2 {
			sum := 0
			after := map[uint32]int{}
			for m, n := range holds {
				share := group.Share(holds, m, total)
				if share < total/len(holds) || share > (total+len(holds)-1)/len(holds) {
					t.Fatalf("of %d partitions, held as %v, %d are for %d", total, holds, share, m)
				}
				if round > 0 && share != n {
					t.Fatalf("no rest: %d has %d of %v and should have %d", m, n, holds, share)
				}
				after[m] = share
				sum += share
			}
			if sum != total {
				t.Fatalf("of %d partitions, held as %v, %d are shared out", total, holds, sum)
			}
			holds = after
		}
		if n := group.Share(map[uint32]int{1: 3}, 2, 8); n != 0 {
			t.Fatalf("somebody else has a share of %d", n)
		}
	})
}

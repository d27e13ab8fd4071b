// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file is the horizon alone: transactions that draw ids, are prepared and end, in any order, and looks in between, each in
// two steps as the server answers it.

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease/leasepg"
)

// L13 without a server: no id up to the horizon is undecided, ever; and when all is decided, the horizon is at the end.
func TestPropertyHorizon(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h leasepg.Horizon
		open := map[string][]int64{} // the ids that each transaction has drawn
		var drawn, looked, safe int64
		count := 0
		undecided := func() int64 {
			least := drawn + 1
			for _, ids := range open {
				for _, id := range ids {
					least = min(least, id)
				}
			}
			return least
		}
		look := func() {
			is, held := h.Look(looked, slices.Collect(maps.Keys(open)))
			if is < safe || is >= undecided() {
				t.Fatalf("L13: the horizon goes from %d to %d, and %d is undecided: %v", safe, is, undecided(), open)
			}
			if held != (is < looked) {
				t.Fatalf("L13: the horizon is at %d of %d, and held: %v", is, looked, held)
			}
			safe = is
		}
		some := func() string { return rapid.SampledFrom(slices.Sorted(maps.Keys(open))).Draw(t, "transaction") }
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(*rapid.T) {
				count++
				open[fmt.Sprint("3/", count)] = nil
			},
			"draw": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("nobody writes")
				}
				drawn++
				tx := some()
				open[tx] = append(open[tx], drawn)
			},
			"prepare": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("nobody writes")
				}
				tx := some()
				ids := open[tx]
				delete(open, tx)
				open["-1/"+tx] = ids
			},
			"end": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("nobody writes")
				}
				delete(open, some())
			},
			"ask for the greatest id": func(*rapid.T) { looked = drawn },
			"ask for the writers":     func(*rapid.T) { look() },
		})
		clear(open)
		looked = drawn
		if look(); safe != drawn {
			t.Fatalf("L13: all is decided up to %d, and the horizon is at %d", drawn, safe)
		}
	})
}

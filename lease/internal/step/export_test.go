// SPDX-License-Identifier: Apache-2.0

// Costs that tests count.

package step

// BacklogProbe returns how many places a search for an absent offset visits on average, over the whole index, in a
// backlog of these offsets.
func BacklogProbe(offsets []int64) float64 {
	q := new(queue)
	for _, offset := range offsets {
		if !q.has(offset) {
			q.push(offset)
		}
	}
	if q.index == nil {
		return float64(q.n)
	}
	visited := 0
	for i := range q.index {
		for j := i; q.index[j] != 0; j = (j + 1) % len(q.index) {
			visited++
		}
	}
	return float64(visited) / float64(len(q.index))
}

// TerminalMoves returns how many members a set moves to take n rising offsets when the floor follows at a distance of lag.
func TerminalMoves(lag, n int64, failures bool) (moved int) {
	t, end := newTerminals(), processed
	set := func() offsets { return t.processed }
	if failures {
		end = failed
		set = func() offsets {
			if t.failed == nil {
				return nil
			}
			return *t.failed
		}
	}
	for offset := range n {
		before := set()
		t.add(offset, end, offset-lag)
		if after := set(); len(before) > 0 && (len(after) != len(before)+1 || &after[0] != &before[0]) {
			moved += len(after)
		}
	}
	return moved
}

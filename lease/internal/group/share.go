// SPDX-License-Identifier: Apache-2.0

package group

import (
	"cmp"
	"slices"
)

// Share returns how many of the partitions a member should hold: as many as any other, give or take one. The odd ones are
// for those who hold the most already, so that nothing moves for their sake. holds has every member that is to stay, with what
// it holds; all members come to the same answer. It is 0 for a member that is not among them.
func Share[M cmp.Ordered](holds map[M]int, member M, partitions int) int {
	members := make([]M, 0, len(holds))
	for m := range holds {
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b M) int { return cmp.Or(cmp.Compare(holds[b], holds[a]), cmp.Compare(a, b)) })
	i := slices.Index(members, member)
	if i < 0 {
		return 0
	}
	share := partitions / len(members)
	if i < partitions%len(members) {
		share++
	}
	return share
}

// SPDX-License-Identifier: Apache-2.0

// Package histogram has the ranges of log-linear histograms of durations, as in HdrHistogram: 1<<groupBits ranges of 1<<fineBits
// ns each, and from there as many for each doubling.
package histogram

import (
	"math/bits"
	"time"
)

// Groups is the number of groups of 1<<groupBits ranges: the first one, and one for each doubling.
const Groups = 32

// RangeOf returns the range of d, which is not negative. The last range has all longer durations as well.
func RangeOf(d time.Duration, fineBits, groupBits int) int {
	perGroup := 1 << groupBits
	u := uint64(d) >> fineBits
	if u < uint64(perGroup) {
		return int(u)
	}
	group := bits.Len64(u) - groupBits
	return min(Groups*perGroup-1, group*perGroup+int(u>>(group-1))-perGroup)
}

// Begin returns the lower bound of range i, the upper bound of the one before.
func Begin(i, fineBits, groupBits int) time.Duration {
	perGroup := 1 << groupBits
	group, in := i/perGroup, i%perGroup
	if group == 0 {
		return time.Duration(in) << fineBits
	}
	return time.Duration(perGroup+in) << (group - 1) << fineBits
}

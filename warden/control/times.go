// SPDX-License-Identifier: Apache-2.0

// Statistics of execution times.

package control

import "math"

// mean returns the mean; 0 for no times.
func mean(times []float64) float64 {
	sum := 0.0
	for _, t := range times {
		sum += t
	}
	return sum / max(float64(len(times)), 1)
}

// lower returns the mean of the shorter half of sorted times, which shows a wait but ignores the longest times.
func lower(sorted []float64) float64 { return mean(sorted[:(len(sorted)+1)/2]) }

// shift returns by how much b is longer than a, by their lower halves, and the standard score z of the Mann-Whitney test
// (1947) that it is longer at all. Both are sorted and not empty. Times that differ by less than 0.1 % count as equal.
func shift(a, b []float64) (by, z float64) {
	m, n := float64(len(a)), float64(len(b))
	u := 0.0
	shorter, longer := 0, 0 // a[:shorter] are shorter than x, a[longer:] are longer
	for _, x := range b {
		for shorter < len(a) && a[shorter]*1.001 < x {
			shorter++
		}
		for longer < len(a) && a[longer]*0.999 <= x {
			longer++
		}
		u += float64(shorter+longer) / 2
	}
	return lower(b) - lower(a), (u - m*n/2) / math.Sqrt(m*n*(m+n+1)/12)
}

// SPDX-License-Identifier: Apache-2.0

// What each kind of work needs at least: a limiter compares it with the time that is left until a deadline.

package control

import (
	"maps"
	"time"
)

// needs (C16) returns the map of a sample, which nobody modifies, or a copy of it without times that cannot be.
func needs(of map[string]time.Duration) map[string]time.Duration {
	for _, need := range of {
		if need <= 0 {
			of = maps.Clone(of)
			maps.DeleteFunc(of, func(_ string, need time.Duration) bool { return need <= 0 })
			return of
		}
	}
	return of
}

// SPDX-License-Identifier: Apache-2.0

//go:build !race

// Without the race detector.

package lease_test

const raceEnabled = false

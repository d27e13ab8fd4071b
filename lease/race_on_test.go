// SPDX-License-Identifier: Apache-2.0

//go:build race

// With the race detector.

package lease_test

const raceEnabled = true // the same counts take ten times as long

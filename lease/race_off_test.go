//go:build !race

package lease_test

// This file says that the race detector is off.

const raceEnabled = false

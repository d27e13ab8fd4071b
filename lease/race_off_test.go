//go:build !race

// Without the race detector.

package lease_test

const raceEnabled = false

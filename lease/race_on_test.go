//go:build race

package lease_test

// This file says that the race detector is on.

const raceEnabled = true // the same counts take ten times as long

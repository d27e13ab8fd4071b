// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file shows the tests what the package keeps to itself.

import "time"

// Resume is how long a record that was acquired at acquired waits for retry n when it has been taken over.
func Resume(cfg Config, acquired time.Time, n int) time.Duration {
	return cfg.resume(moment{now: time.Now(), random: random()}, acquired, n)
}

// SetRandom replaces the random numbers of the jitter, and returns what puts them back.
func SetRandom(numbers func() float64) (restore func()) {
	before := random
	random = numbers
	return func() { random = before }
}

// Behind is how many domains and owners have to be read again, and Next the first offset never read.
func (d *Dispatcher) Behind() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.deferralsLocked()
}

func (d *Dispatcher) Next() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.position
}

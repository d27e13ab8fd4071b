// SPDX-License-Identifier: Apache-2.0

// The table of docs/production.md: by Little's law, slots and queues follow from calls per second and seconds per call.

package bulkhead_test

import (
	"fmt"
	"math"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
)

// Measured values first, then decisions. A queue is what the guaranteed slots serve while the last call waits.
func ExampleCompartmentConfig() {
	cfg := bulkhead.Config{Total: 80} // the database connections of this process
	for _, part := range []struct {
		name     string
		rate     float64 // calls per second in the busiest minute
		seconds  float64 // mean time that a call holds its connection
		headroom float64 // guaranteed slots, in multiples of the mean number in use
		lendable float64 // lendable share of the guaranteed slots
		max      int     // slots, including borrowed ones
		wait     float64 // longest queue wait in seconds
		timeout  time.Duration
	}{
		{"checkout", 200, 0.1, 1.5, 0, 45, 0.5, 2 * time.Second},
		{"products", 400, 0.05, 1.5, 0.5, 40, 0.2, time.Second},
		{"analytics", 2, 2, 1, 1, 10, 2, 15 * time.Second},
		{"admin", 5, 0.2, 3, 0, 5, 1, 5 * time.Second},
	} {
		inUse := part.rate * part.seconds // Little's law
		guaranteed := math.Ceil(inUse*part.headroom - 1e-9)
		c := bulkhead.CompartmentConfig{
			Name: part.name, Guaranteed: int(guaranteed), Lendable: int(guaranteed * part.lendable), Max: part.max,
			MaxQueue: int(math.Ceil(part.wait*guaranteed/part.seconds - 1e-9)),
			MaxWait:  time.Duration(part.wait * float64(time.Second)), Timeout: part.timeout,
		}
		cfg.Compartments = append(cfg.Compartments, c)
		fmt.Printf("| %s | %g | %g | %g | %d | %d | %d | %g | %d |\n",
			part.name, part.rate, part.seconds, inUse, c.Guaranteed, c.Lendable, c.Max, part.wait, c.MaxQueue)
	}
	_, err := bulkhead.New(cfg)
	fmt.Println(err)
	// Output:
	// | checkout | 200 | 0.1 | 20 | 30 | 0 | 45 | 0.5 | 150 |
	// | products | 400 | 0.05 | 20 | 30 | 15 | 40 | 0.2 | 120 |
	// | analytics | 2 | 2 | 4 | 4 | 4 | 10 | 2 | 4 |
	// | admin | 5 | 0.2 | 1 | 3 | 0 | 5 | 1 | 15 |
	// <nil>
}

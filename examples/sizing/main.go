// Sizing computes the tables of docs/production.md: by Little's law, slots, queues and connections follow from calls per second
// and seconds per call.
package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
)

func main() {
	config(os.Stdout)
	retries(os.Stdout)
}

// A part of the shop: measured values first, then decisions.
type part struct {
	name        string
	rate        float64 // calls per second in the busiest minute
	seconds     float64 // mean time that a call holds its connection
	headroom    float64 // guaranteed slots, in multiples of the mean number in use
	lendable    float64 // lendable share of the guaranteed slots
	max         int     // slots, including borrowed ones
	wait        float64 // longest queue wait in seconds
	timeout     time.Duration
	criticality limiter.Priority
}

func shop() []part {
	return []part{
		{"checkout", 200, 0.1, 1.5, 0, 45, 0.5, 2 * time.Second, limiter.Critical},
		{"products", 400, 0.05, 1.5, 0.5, 40, 0.2, time.Second, limiter.Normal},
		{"analytics", 2, 2, 1, 1, 10, 2, 15 * time.Second, limiter.Background},
		{"admin", 5, 0.2, 3, 0, 5, 1, 5 * time.Second, limiter.High},
	}
}

// total is the number of database connections of this process.
const total = 80

// config returns the parts as compartments and prints their rows.
func config(out io.Writer) bulkhead.Config {
	cfg := bulkhead.Config{Total: total}
	for _, p := range shop() {
		inUse := p.rate * p.seconds // Little's law
		guaranteed := up(inUse * p.headroom)
		c := bulkhead.CompartmentConfig{
			Name: p.name, Guaranteed: guaranteed, Lendable: int(float64(guaranteed) * p.lendable), Max: p.max,
			MaxQueue: up(p.wait * float64(guaranteed) / p.seconds), // calls served while the last one waits
			MaxWait:  time.Duration(p.wait * float64(time.Second)), Timeout: p.timeout, Criticality: p.criticality,
		}
		cfg.Compartments = append(cfg.Compartments, c)
		fmt.Fprintf(out, "| %s | %g | %g | %g | %d | %d | %d | %g | %d |\n",
			p.name, p.rate, p.seconds, inUse, c.Guaranteed, c.Lendable, c.Max, p.wait, c.MaxQueue)
	}
	return cfg
}

// up rounds up, except for errors of floating point.
func up(x float64) int { return int(math.Ceil(x - 1e-9)) }

// retries prints how many calls reach a failing dependency per user request: if every layer makes three attempts, and if every
// layer has a retry budget of a tenth of its calls.
func retries(out io.Writer) {
	for layers := 1.; layers <= 3; layers++ {
		fmt.Fprintf(out, "| %g | %g | %.2f |\n", layers, math.Pow(3, layers), math.Pow(1.1, layers))
	}
}

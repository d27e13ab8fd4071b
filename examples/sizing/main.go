// Sizing is the worked example of docs/production.md: from calls per second and seconds per call to places, queues and
// connections, by Little's law. It prints the rows of the tables there.
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

// A part of the shop: what was measured, and what was decided.
type part struct {
	name        string
	rate        float64 // calls per second in the busiest minute
	seconds     float64 // that a call holds its connection, on average
	headroom    float64 // guarantee, in multiples of what is in use on average
	lends       float64 // share of the guarantee
	most        int     // places, with those that are borrowed
	wait        float64 // seconds that a call may wait
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

// total is how many connections the database grants this process.
const total = 80

// config prints how the parts become compartments, and returns these.
func config(out io.Writer) bulkhead.Config {
	cfg := bulkhead.Config{Total: total}
	for _, p := range shop() {
		inUse := p.rate * p.seconds // Little's law
		guaranteed := up(inUse * p.headroom)
		c := bulkhead.CompartmentConfig{
			Name: p.name, Guaranteed: guaranteed, Lendable: int(float64(guaranteed) * p.lends), Max: p.most,
			MaxQueue: up(p.wait * float64(guaranteed) / p.seconds), // as many as are served while the last one waits
			MaxWait:  time.Duration(p.wait * float64(time.Second)), Timeout: p.timeout, Criticality: p.criticality,
		}
		cfg.Compartments = append(cfg.Compartments, c)
		fmt.Fprintf(out, "| %s | %g | %g | %g | %d | %d | %d | %g | %d |\n",
			p.name, p.rate, p.seconds, inUse, c.Guaranteed, c.Lendable, c.Max, p.wait, c.MaxQueue)
	}
	return cfg
}

// up is the next whole number; what floating point adds is no reason for one more.
func up(x float64) int { return int(math.Ceil(x - 1e-9)) }

// retries prints how many calls reach a dependency that fails them all, for each one that a user asks for: if every layer
// tries three times, and if every layer may spend a tenth of its calls on retries.
func retries(out io.Writer) {
	for layers := 1.; layers <= 3; layers++ {
		fmt.Fprintf(out, "| %g | %g | %.2f |\n", layers, math.Pow(3, layers), math.Pow(1.1, layers))
	}
}

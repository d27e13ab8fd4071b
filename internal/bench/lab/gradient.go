// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The law of Netflix's Gradient2 limit: concurrency follows the ratio of a long average of latency to that of the last second.

package main

import (
	"sync"
	"time"
)

// The defaults of Gradient2Limit and WindowedLimit in Netflix concurrency-limits 0.5, whose README puts the one into the other.
const (
	gradientLeast, gradientMost = 20, 200 // the least is where it begins
	gradientQueue               = 4
	gradientTolerance           = 1.5
	gradientSmoothing           = 0.2
	gradientWarm, gradientLong  = 10, 600 // windows of the long average
	gradientWindow              = time.Second
	gradientSamples             = 10 // fewer in a window say nothing
	gradientFastest             = 100 * time.Microsecond
)

// gradient2 rejects beyond its limit at once, and has no priorities.
type gradient2 struct {
	mu       sync.Mutex // guards the rest
	inFlight int
	limit    float64

	ends          time.Time // of the window
	samples, most int       // in the window: executions, and concurrency
	sum           time.Duration
	long          float64 // nanoseconds
	windows       int     // in long, at most gradientWarm
}

func newGradient2() *gradient2 { return &gradient2{limit: gradientLeast} }

// begin reports whether an execution may begin, and the concurrency with it.
func (g *gradient2) begin() (inFlight int, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inFlight >= int(g.limit) {
		return 0, false
	}
	g.inFlight++
	return g.inFlight, true
}

// end is of an execution that began at a concurrency of inFlight, took so long and ends now.
func (g *gradient2) end(inFlight int, took time.Duration, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	if took < gradientFastest {
		return
	}
	g.samples, g.most, g.sum = g.samples+1, max(g.most, inFlight), g.sum+took
	if !now.After(g.ends) {
		return
	}
	if g.samples >= gradientSamples {
		g.update(float64(g.sum)/float64(g.samples), g.most)
	}
	g.ends, g.samples, g.most, g.sum = now.Add(gradientWindow), 0, 0, 0
}

// update follows a window's mean latency, in nanoseconds, and highest concurrency.
func (g *gradient2) update(short float64, most int) {
	weight := 2.0 / (gradientLong + 1)
	if g.windows < gradientWarm {
		g.windows++
		weight = 1 / float64(g.windows)
	}
	g.long += weight * (short - g.long)
	long := g.long
	if long > 2*short {
		g.long *= 0.95 // after a long overload
	}
	if float64(most) < g.limit/2 {
		return
	}
	gradient := max(0.5, min(1, gradientTolerance*long/short))
	next := g.limit*gradient + gradientQueue
	g.limit = max(gradientLeast, min(gradientMost, g.limit+gradientSmoothing*(next-g.limit)))
}

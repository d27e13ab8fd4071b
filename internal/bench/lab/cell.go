// SPDX-License-Identifier: Apache-2.0

//go:build linux

// A cell: the result of one way of limiting with one workload, one load and one kind of clients or containers, in one run or the median of
// several.

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/aclements/go-moremath/stats"
)

// Cell is the result of one way. Times are in milliseconds, fractions from 0 to 1. Of several runs Goodput, Critical and Left are the medians,
// Killed is the latest, and the rest is of the run with the median goodput.
type Cell struct {
	Lab      string  `json:"lab"`
	Workload string  `json:"workload"`
	Load     float64 `json:"load"` // relative to the capacity
	Kind     string  `json:"kind"`
	Way      string  `json:"way"`

	Capacity float64 `json:"capacity,omitempty"` // requests per second, measured in the same run; 0: unknown
	Offered  float64 `json:"offered"`            // requests per second
	Goodput  float64 `json:"goodput"`            // work answered in time / possible work: the offered, at most the capacity not stolen
	Ceiling  float64 `json:"ceiling,omitempty"`  // the goodput that remains after the cost of rejecting the excess
	tally
	Queue  *tally  `json:"queue,omitempty"`  // a priority queue with the same requests
	Inside *inside `json:"inside,omitempty"` // what the server says

	Late   float64 `json:"late_p99"`         // lateness of the generator, 99th percentile
	Stolen float64 `json:"stolen,omitempty"` // fraction of the server's core that others used
	Doubt  string  `json:"doubt,omitempty"`  // reason not to trust the cell

	Rounds []Round `json:"rounds,omitempty"` // all of them in order, if several
}

// inside is what a server in a container says of itself, and what was seen of its process.
type inside struct {
	Samples int     `json:"samples,omitempty"`
	Memory  int     `json:"memory,omitempty"`  // samples that lowered the limit for memory
	Starved int     `json:"starved,omitempty"` // samples that say so
	Least   int     `json:"least,omitempty"`   // the limit
	Most    int     `json:"most,omitempty"`
	LiveMB  float64 `json:"live_mb,omitempty"` // the most that a collection left
	PeakMB  float64 `json:"peak_mb,omitempty"` // resident
	Killed  float64 `json:"killed,omitempty"`  // seconds after the start; 0: it was not
}

// Round is one run of a cell that has several.
type Round struct {
	Capacity float64 `json:"capacity"`
	Goodput  float64 `json:"goodput"`
	Critical float64 `json:"critical"`
	Stolen   float64 `json:"stolen"`
	Left     float64 `json:"left,omitempty"`
	Doubt    string  `json:"doubt,omitempty"`
}

// median is the cell of these runs, at least one.
func median(runs []Cell) Cell {
	if len(runs) == 1 {
		return runs[0]
	}
	var rounds []Round
	doubts, killed := 0, 0.0
	for _, c := range runs {
		if c.Doubt != "" {
			doubts++
		}
		rounds = append(rounds, Round{c.Capacity, c.Goodput, c.Critical, c.Stolen, c.Left, c.Doubt})
		killed = max(killed, c.killed())
	}
	sorted := slices.SortedFunc(slices.Values(runs), func(a, b Cell) int { return cmp.Compare(a.Goodput, b.Goodput) })
	c := sorted[(len(sorted)-1)/2]
	c.Rounds, c.Doubt = rounds, ""
	if killed > 0 {
		seen := *c.Inside
		seen.Killed, c.Inside = killed, &seen
	}
	_, c.Goodput, _ = c.spread(func(r Round) float64 { return r.Goodput })
	_, c.Critical, _ = c.spread(func(r Round) float64 { return r.Critical })
	_, c.Left, _ = c.spread(func(r Round) float64 { return r.Left })
	if doubts > 0 {
		c.Doubt = fmt.Sprintf("%d of %d rounds were disturbed", doubts, len(runs))
	}
	return c
}

func (c *Cell) killed() float64 {
	if c.Inside == nil {
		return 0
	}
	return c.Inside.Killed
}

// spread is the least, the median and the most of the rounds.
func (c *Cell) spread(of func(Round) float64) (least, middle, most float64) {
	var all []float64
	for _, r := range c.Rounds {
		all = append(all, of(r))
	}
	slices.Sort(all)
	n := len(all)
	return all[0], (all[(n-1)/2] + all[n/2]) / 2, all[n-1]
}

// tally counts the outcomes of requests.
type tally struct {
	Count    int     `json:"count"`
	Unsent   int     `json:"unsent,omitempty"` // too many were in flight, or the connection broke
	Success  float64 `json:"success"`          // fraction of all that was answered in time
	Critical float64 `json:"critical"`         // fraction of the critical that was answered in time
	P50      float64 `json:"p50"`              // of answers in time, from the intended start
	P99      float64 `json:"p99"`
	P99Crit  float64 `json:"p99_critical"`
	Reject   float64 `json:"reject_p50,omitempty"` // time until a rejection arrived
	Reject99 float64 `json:"reject_p99,omitempty"`
	Refused  float64 `json:"refused,omitempty"` // fraction of all that got a rejection
	Left     float64 `json:"left,omitempty"`    // fraction of all that left without an answer
	Broken   float64 `json:"broken,omitempty"`  // fraction of all whose connection was refused or broke before an answer

	work, offered float64 // work answered in time, and all work, in mean requests
	late          float64
}

// judge computes the results of a cell from its requests.
func (c *Cell) judge(all []request, g *group, length time.Duration) {
	possible := c.Capacity
	if g.work.computes() {
		possible *= 1 - c.Stolen
	}
	c.tally = count(all, g)
	c.Offered = float64(c.Count) / length.Seconds()
	c.Goodput = c.work / length.Seconds() // answered in time per second, where no capacity is known
	if possible > 0 {
		c.Goodput = c.work / min(possible*length.Seconds(), c.offered)
	}
	c.Late = c.late
	if c.Lab == "overload" && !g.work.unbound() {
		queue := count(replay(all, g, possible*c.Ceiling), g)
		c.Queue = &queue
	}
	switch {
	case c.Late > ms(late):
		c.Doubt = fmt.Sprintf("the generator was late by %.1f ms", c.Late)
	case c.Stolen > tooMuch && possible < min(c.Capacity, c.Offered): // irrelevant without computing, or with time to spare
		c.Doubt = fmt.Sprintf("others took %.0f %% of the server's core", 100*c.Stolen)
	}
}

// late is the generator's lateness, and tooMuch the stolen fraction of the server's core, above which a cell is doubted.
const (
	late    = 5 * time.Millisecond
	tooMuch = 0.1
)

// good reports an answer in time.
func (r *request) good(patience time.Duration) bool {
	return r.status == 200 && r.done <= r.overdue(patience)
}

// count tallies the requests that are counted. Critical requests to a service behind a proxy, which is flooded from cold, count after
// five seconds.
func count(all []request, g *group) (t tally) {
	var good, goodCritical, refusals, lateness []time.Duration
	critical, left, broken, settled := 0, 0, 0, int64(0)
	if g.work.service != nil {
		settled = int64(5 * time.Second)
	}
	for i := range all {
		r := &all[i]
		if !r.counted {
			continue
		}
		weight := g.work.weight(r.heavy)
		isCritical := r.critical && r.due >= settled
		t.Count++
		t.offered += weight
		switch {
		case r.sent != 0:
			lateness = append(lateness, time.Duration(r.sent-r.due))
		case !r.broken:
			t.Unsent++
		}
		took := time.Duration(r.done - r.due)
		if isCritical {
			critical++
		}
		switch {
		case r.good(g.patience()):
			t.work += weight
			good = append(good, took)
			if isCritical {
				goodCritical = append(goodCritical, took)
			}
		case r.broken:
			broken++
		case r.status != 0 && r.status != 200:
			refusals = append(refusals, took)
		case r.status == 0:
			left++
		}
	}
	t.Success, t.Critical = share(len(good), t.Count), share(len(goodCritical), critical)
	t.P50, t.P99, t.P99Crit = quantile(good, 0.5), quantile(good, 0.99), quantile(goodCritical, 0.99)
	t.Reject, t.Reject99, t.late = quantile(refusals, 0.5), quantile(refusals, 0.99), quantile(lateness, 0.99)
	t.Refused, t.Left, t.Broken = share(len(refusals), t.Count), share(left, t.Count), share(broken, t.Count)
	return t
}

func share(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// quantile is in milliseconds; 0 if there are none. It sorts its argument.
func quantile(of []time.Duration, q float64) float64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return ms(of[min(len(of)-1, int(q*float64(len(of))))])
}

const header = "work/load/clients/way                  capacity goodput ceiling critical    p50    p99 p99crit  queue  left refused  noes   late stolen"

// String is the line that is printed during a measurement.
func (c *Cell) String() string {
	queue := tally{}
	if c.Queue != nil {
		queue = *c.Queue
	}
	line := fmt.Sprintf("%-38s %8.0f %7.3f %7.3f %8.4f %6.0f %6.0f %7.1f %6.1f %5.3f %7.3f %5.0f %6.2f %6.3f",
		cellName(c.Workload, c.Load, c.Kind, c.Way), c.Capacity, c.Goodput, c.Ceiling, c.Critical, c.P50, c.P99, c.P99Crit, queue.P99Crit,
		c.Left, c.Refused, c.Reject, c.Late, c.Stolen)
	if c.Inside != nil && c.Lab == "container" {
		line += fmt.Sprintf("  %+v", *c.Inside)
	}
	return line + "  " + c.Doubt
}

// differences are the means of what the first runs got more than the others, round by round, with their 95 % confidence intervals
// (Student's t) and a star where these exclude 0. What the machine does to both drops out of them.
func differences(ours, others []Cell) string {
	n := float64(min(len(ours), len(others)))
	if n < 2 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "more than before, %s %g×:", ours[0].Workload, ours[0].Load)
	for _, f := range []struct {
		name string
		of   func(*Cell) float64
	}{
		{"goodput", func(c *Cell) float64 { return c.Goodput }}, {"critical", func(c *Cell) float64 { return c.Critical }},
		{"p99 of critical, ms", func(c *Cell) float64 { return c.P99Crit }},
	} {
		var all stats.Sample
		for i := range int(n) {
			all.Xs = append(all.Xs, f.of(&ours[i])-f.of(&others[i]))
		}
		mean, half := all.Mean(), stats.InvCDF(stats.TDist{V: n - 1})(0.975)*all.StdDev()/math.Sqrt(n)
		mark := ""
		if math.Abs(mean) > half {
			mark = " *"
		}
		fmt.Fprintf(&b, " %s %+.3f ± %.3f%s;", f.name, mean, half, mark)
	}
	return b.String() + "\n"
}

//go:build linux

// A cell: one variant, one workload, one load, and what came of it.

package main

import (
	"fmt"
	"hash/fnv"
	"runtime"
	"slices"
	"time"
)

// Cell is the result of one run of one variant. Times are in milliseconds, shares from 0 to 1.
type Cell struct {
	Variant  string  `json:"variant"`
	Workload string  `json:"workload"`
	Load     string  `json:"load"`     // "4x", or "step"
	Capacity float64 `json:"capacity"` // requests per second, measured in the same run

	Offered  float64 `json:"offered"`  // requests per second
	Success  float64 `json:"success"`  // answered in time, of those sent
	Goodput  float64 `json:"goodput"`  // answered in time per second, of what was possible: the capacity, less what others took of it, or the offered, whichever is less
	Ceiling  float64 `json:"ceiling"`  // the goodput that the cost of refusing leaves
	Critical float64 `json:"critical"` // answered in time, of the critical
	P50      float64 `json:"p50"`      // of what was answered in time, from the intended start
	P99      float64 `json:"p99"`
	P99Crit  float64 `json:"p99_critical"`
	Reject   float64 `json:"reject_p50"` // until a refusal arrived
	Accept   float64 `json:"accept_p50"` // until the handler saw the request
	Wasted   float64 `json:"wasted"`     // work done too late, of all work done
	Count    int     `json:"count"`      // requests

	// The step alone: goodput by half seconds; the least of the overload; the success of the first half second after it.
	Halves   []float64 `json:"halves,omitempty"`
	First    float64   `json:"step_first,omitempty"`
	Least    float64   `json:"step_least,omitempty"`
	Recovery float64   `json:"recovery,omitempty"`

	// What the generator says of itself: how late it sent, 99th percentile; and what it could not send.
	Late   float64 `json:"late_p99"`
	Unsent int     `json:"unsent"`
	Stolen float64 `json:"stolen"`          // of the server's core, by others
	Doubt  string  `json:"doubt,omitempty"` // why the cell should not be trusted

	there float64 // capacity, less what others took of the core
}

// plan is how long things take.
type plan struct {
	warm, slowWarm, length, step time.Duration
	probe                        time.Duration // of measuring the capacity
	seed                         uint64
	trace                        bool
}

// lab is what all cells of a run share.
type lab struct {
	plan
	rounds                    float64
	serverCore, generatorCore int
}

// late is how late the generator may be, and tooMuch what others may take of the server's core, before a cell is doubted.
const (
	late    = 5 * time.Millisecond
	tooMuch = 0.1
)

// able is how many requests per second a server answers.
type able struct {
	capacity float64 // with work, if it is never short of requests and never crowded
	refusing float64 // refusing all of them
}

// measure finds out what a server is able to do.
func (l *lab) measure(w workload) (a able, err error) {
	if a.capacity, err = l.answers("none", w, w.right, l.probe); err != nil {
		return a, err
	}
	a.refusing, err = l.answers(refuseAll, w, 32, l.probe/3)
	return a, err
}

// answers is how many answers per second a server gives with n requests under way, as if it had its core to itself.
func (l *lab) answers(variant string, w workload, n int, length time.Duration) (float64, error) {
	c, err := start(serveArgs{Variant: variant, Workload: w.name, Rounds: l.rounds}, l.serverCore, l.generatorCore)
	if err != nil {
		return 0, err
	}
	defer c.stop()
	g, err := newGenerator(c.addr)
	if err != nil {
		return 0, err
	}
	defer g.close()
	var before lost
	perSecond, err := g.closed(n, 300*time.Millisecond, length, func() (err error) {
		before, err = lostOf(l.serverCore, c.cmd.Process.Pid)
		return err
	})
	if err != nil {
		return 0, err
	}
	after, err := lostOf(l.serverCore, c.cmd.Process.Pid)
	if w.cpu > 0 || variant == refuseAll {
		perSecond /= 1 - after.stolen(before)
	}
	return perSecond, err
}

// ceiling is the goodput that is left when all that is too much has been refused, each refusal at its cost.
func (a able) ceiling(w workload, load float64) float64 {
	answer, refusal := 1/a.capacity, 1/a.refusing
	if w.cpu == 0 || load <= 1 {
		return 1
	}
	return max(0, (1-load*a.capacity*refusal)/(1-refusal/answer))
}

// stepLoads are the loads of the step, each for plan.step.
func stepLoads() []float64 { return []float64{0.6, 5, 0.6} }

// run measures one cell. load 0 is the step.
func (l *lab) run(v variant, w workload, load float64, a able) (Cell, error) {
	capacity := a.capacity
	warm := l.warm
	if v.slow {
		warm = l.slowWarm
	}
	cell := Cell{Variant: v.name, Workload: w.name, Load: fmt.Sprintf("%gx", load), Capacity: capacity, Ceiling: a.ceiling(w, load)}
	phases := []phase{{load * capacity, warm + l.length}}
	if load == 0 {
		cell.Load = "step"
		phases = []phase{{stepLoads()[0] * capacity, warm}}
		for _, x := range stepLoads() {
			phases = append(phases, phase{x * capacity, l.step})
		}
	}
	var end time.Duration
	for _, p := range phases {
		end += p.length
	}
	h := fnv.New64()
	_, _ = h.Write([]byte(w.name + cell.Load))
	runtime.GC() // not while measuring
	all := schedule(phases, l.seed^h.Sum64())

	c, err := start(serveArgs{Variant: v.name, Workload: w.name, Rounds: l.rounds, Trace: l.trace}, l.serverCore, l.generatorCore)
	if err != nil {
		return cell, err
	}
	defer c.stop()
	g, err := newGenerator(c.addr)
	if err != nil {
		return cell, err
	}
	defer g.close()
	var before snapshot
	var core, after lost
	warming := true
	if err := g.open(all, func(now time.Duration) {
		if warming && now >= warm {
			warming, before = false, c.count.snapshot()
			core, err = lostOf(l.serverCore, c.cmd.Process.Pid)
		}
	}); err != nil {
		return cell, err
	}
	if err != nil {
		return cell, err
	}
	if after, err = lostOf(l.serverCore, c.cmd.Process.Pid); err != nil {
		return cell, err
	}
	cell.Stolen = after.stolen(core)
	if w.cpu > 0 {
		cell.there = capacity * (1 - cell.Stolen)
	} else {
		cell.there = capacity
	}
	counted := c.count.snapshot().since(before)
	cell.Accept = ms(counted.acceptMedian())
	if counted.executed > 0 {
		cell.Wasted = float64(counted.wasted) / float64(counted.executed)
	}
	cell.judge(all, int64(warm), int64(end))
	if load == 0 {
		cell.halves(all, int64(warm), int64(l.step))
	}
	return cell, nil
}

// good is an answer in time.
func (r *request) good() bool { return r.status == 200 && r.done-r.due <= int64(deadline) }

// judge computes what a cell says from its requests between two times.
func (c *Cell) judge(all []request, begin, end int64) {
	var good, goodCritical, refusals, lateness []time.Duration
	critical, sent := 0, 0
	for i := range all {
		r := &all[i]
		if r.due < begin || r.due >= end {
			continue
		}
		c.Count++
		if r.sent == 0 {
			c.Unsent++
		} else {
			sent++
			lateness = append(lateness, time.Duration(r.sent-r.due))
		}
		took := time.Duration(r.done - r.due)
		if r.critical {
			critical++
		}
		switch {
		case r.good():
			good = append(good, took)
			if r.critical {
				goodCritical = append(goodCritical, took)
			}
		case r.status != 0 && r.status != 200:
			refusals = append(refusals, took)
		}
	}
	seconds := time.Duration(end - begin).Seconds()
	c.Offered = float64(c.Count) / seconds
	c.Success = share(len(good), c.Count)
	c.Goodput = float64(len(good)) / seconds / min(c.there, c.Offered)
	c.Critical = share(len(goodCritical), critical)
	c.P50, c.P99, c.P99Crit = quantile(good, 0.5), quantile(good, 0.99), quantile(goodCritical, 0.99)
	c.Reject = quantile(refusals, 0.5)
	c.Late = quantile(lateness, 0.99)
	switch {
	case c.Late > ms(late):
		c.Doubt = fmt.Sprintf("the generator was late by %.1f ms", c.Late)
	case c.Stolen > tooMuch && c.there < min(c.Capacity, c.Offered): // with nothing to compute, or time enough, it is no matter
		c.Doubt = fmt.Sprintf("others took %.0f %% of the server's core", 100*c.Stolen)
	}
}

// halves computes what a step says: goodput by half seconds, each by the answers that arrived in it.
func (c *Cell) halves(all []request, begin, step int64) {
	const half = int64(500 * time.Millisecond)
	n := 3 * step / half
	got, offered := make([]float64, n), make([]float64, n)
	var recovered, asked int
	for i := range all {
		r := &all[i]
		if at := (r.due - begin) / half; r.due >= begin && at < n {
			offered[at]++
		}
		if at := (r.done - begin) / half; r.good() && r.done >= begin && at < n {
			got[at]++
		}
		if since := r.due - begin - 2*step; since >= 0 && since < half {
			asked++
			if r.good() {
				recovered++
			}
		}
	}
	for i := range got {
		got[i] /= min(offered[i], c.there/2)
	}
	c.Halves = got
	overload := got[step/half : 2*step/half]
	c.First, c.Least, c.Recovery = overload[0], slices.Min(overload), share(recovered, asked)
}

func share(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// quantile is in milliseconds, 0 of nothing. It sorts.
func quantile(of []time.Duration, q float64) float64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return ms(of[min(len(of)-1, int(q*float64(len(of))))])
}

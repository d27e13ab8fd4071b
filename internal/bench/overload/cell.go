//go:build linux

// A cell: one variant, one workload, one load, clients of one kind, and what came of it.

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
	Workload string  `json:"workload"`
	Load     float64 `json:"load"` // in capacities
	Knows    string  `json:"knows"`
	Variant  string  `json:"variant"`

	Capacity float64 `json:"capacity"` // requests per second, measured in the same run
	Offered  float64 `json:"offered"`  // requests per second
	Goodput  float64 `json:"goodput"`  // work answered in time, of what was possible: the capacity, less what others took of it, or the offered, whichever is less
	Ceiling  float64 `json:"ceiling"`  // the goodput that the cost of refusing leaves
	tally
	Wasted  float64   `json:"wasted"`          // executions that ended when nobody waited any more, of all
	Queue   *tally    `json:"queue,omitempty"` // a priority queue with the same requests
	Seconds []float64 `json:"seconds"`         // answered in time, of what came in each of the first ten seconds of the process

	Late   float64 `json:"late_p99"`        // the generator, 99th percentile
	Stolen float64 `json:"stolen"`          // of the server's cores, by others
	Doubt  string  `json:"doubt,omitempty"` // why the cell should not be trusted
}

// tally is what became of some requests.
type tally struct {
	Count    int     `json:"count"`
	Unsent   int     `json:"unsent,omitempty"` // for want of a connection
	Success  float64 `json:"success"`          // answered in time, of all
	Critical float64 `json:"critical"`         // answered in time, of the critical
	P50      float64 `json:"p50"`              // of what was answered in time, from the intended start
	P99      float64 `json:"p99"`
	P99Crit  float64 `json:"p99_critical"`
	Reject   float64 `json:"reject_p50,omitempty"` // until a refusal arrived

	work, offered float64 // of all that was answered in time, and of all, in mean requests
	late          float64
}

// plan is how long things take.
type plan struct {
	warm, slowWarm time.Duration
	length         time.Duration // of every cell; 0: usual, or what the workload needs
	usual          time.Duration
	probe          time.Duration // of measuring the capacity
	seed           uint64
}

// lab is what all cells of a run share.
type lab struct {
	plan
	cores  []int
	rounds float64
}

// able is how many requests per second a server answers.
type able struct {
	capacity float64 // with work, if it is never short of requests and never crowded
	refusing float64 // refusing all of them
}

// measure finds out what a server is able to do for clients of a kind.
func (l *lab) measure(w workload, knows string) (a able, err error) {
	if w.unbound() {
		return able{capacity: atOnce / w.wait.Seconds()}, nil
	}
	if a.capacity, err = l.answers("none", w, knows, w.right, l.probe); err != nil {
		return a, err
	}
	a.refusing, err = l.answers(refuseAll, w, knows, 32, l.probe/3)
	return a, err
}

// running starts a server and a generator for it.
func (l *lab) running(variant string, w workload, knows string) (at placement, c *child, g *generator, err error) {
	if at, err = place(l.cores, w.processors); err != nil {
		return at, nil, nil, err
	}
	if c, err = start(serveArgs{variant, w.name, knows, l.rounds}, at); err != nil {
		return at, nil, nil, err
	}
	if g, err = newGenerator(c.addr, knows, w.patience, at.shared); err != nil {
		_, _, _ = c.stop()
	}
	return at, c, g, err
}

// answers is how many answers per second a server gives with n requests under way, as if it had its cores to itself.
func (l *lab) answers(variant string, w workload, knows string, n int, length time.Duration) (float64, error) {
	at, c, g, err := l.running(variant, w, knows)
	if err != nil {
		return 0, err
	}
	defer func() { _, _, _ = c.stop() }()
	defer g.close()
	var before lost
	perSecond, err := g.closed(n, 300*time.Millisecond, length, func() (err error) {
		before, err = lostOf(at.server, c.cmd.Process.Pid)
		return err
	})
	if err != nil {
		return 0, err
	}
	after, err := lostOf(at.server, c.cmd.Process.Pid)
	if w.computes() || variant == refuseAll {
		perSecond /= 1 - after.stolen(before, len(at.server))
	}
	return perSecond, err
}

// ceiling is the goodput that is left when all that is too much has been refused, each refusal at its cost.
func (a able) ceiling(w workload, load float64) float64 {
	if !w.computes() || load <= 1 {
		return 1
	}
	answer, refusal := 1/a.capacity, 1/a.refusing
	return max(0, (1-load*a.capacity*refusal)/(1-refusal/answer))
}

// run measures one cell.
func (l *lab) run(v variant, w workload, load float64, knows string, a able) (Cell, error) {
	cell := Cell{Workload: w.name, Load: load, Knows: knows, Variant: v.name, Capacity: a.capacity, Ceiling: a.ceiling(w, load)}
	warm, length, tail := l.warm, l.length, w.patience
	switch {
	case w.unbound(): // nobody is in anybody's way
		warm, tail = 0, 0
	case v.slow:
		warm = l.slowWarm
	}
	if length == 0 {
		length = max(l.usual, w.length)
	}
	h := fnv.New64()
	_, _ = fmt.Fprint(h, w.name, load)
	runtime.GC() // not while measuring
	all := schedule(load*a.capacity, warm, length, tail, l.seed^h.Sum64())

	at, c, g, err := l.running(v.name, w, knows)
	if err != nil {
		return cell, err
	}
	defer g.close()
	var before, after lost
	counted := false
	err = g.open(all, func(now time.Duration) {
		if !counted && now >= warm {
			counted = true
			if before, err = lostOf(at.server, c.cmd.Process.Pid); err != nil {
				g.failed = err
			}
		}
	})
	if err == nil {
		after, err = lostOf(at.server, c.cmd.Process.Pid)
	}
	executed, wasted, stopped := c.stop()
	if err != nil || stopped != nil {
		return cell, fmt.Errorf("%w; the server: %w", err, stopped)
	}
	cell.Stolen = after.stolen(before, len(at.server))
	cell.Wasted = share(wasted, executed)
	cell.judge(all, w, length)
	return cell, nil
}

// judge computes what a cell says from its requests.
func (c *Cell) judge(all []request, w workload, length time.Duration) {
	possible := c.Capacity
	if w.computes() {
		possible *= 1 - c.Stolen
	}
	c.tally = count(all, w)
	c.Offered = float64(c.Count) / length.Seconds()
	c.Goodput = c.work / min(possible*length.Seconds(), c.offered)
	c.Late = c.late
	c.Seconds = seconds(all, w.patience)
	if !w.unbound() {
		queue := count(replay(all, w, possible*c.Ceiling), w)
		c.Queue = &queue
	}
	switch {
	case c.Late > ms(late):
		c.Doubt = fmt.Sprintf("the generator was late by %.1f ms", c.Late)
	case c.Stolen > tooMuch && possible < min(c.Capacity, c.Offered): // with nothing to compute, or time enough, it is no matter
		c.Doubt = fmt.Sprintf("others took %.0f %% of the server's cores", 100*c.Stolen)
	}
}

// late is how late the generator may be, and tooMuch what others may take of the server's cores, before a cell is doubted.
const (
	late    = 5 * time.Millisecond
	tooMuch = 0.1
)

// good is an answer in time.
func (r *request) good(patience time.Duration) bool {
	return r.status == 200 && r.done <= r.overdue(patience)
}

// count is what became of the requests that count.
func count(all []request, w workload) (t tally) {
	var good, goodCritical, refusals, lateness []time.Duration
	critical := 0
	for i := range all {
		r := &all[i]
		if !r.counted {
			continue
		}
		t.Count++
		t.offered += w.weight(r.heavy)
		if r.sent == 0 {
			t.Unsent++
		} else {
			lateness = append(lateness, time.Duration(r.sent-r.due))
		}
		took := time.Duration(r.done - r.due)
		if r.critical {
			critical++
		}
		switch {
		case r.good(w.patience):
			t.work += w.weight(r.heavy)
			good = append(good, took)
			if r.critical {
				goodCritical = append(goodCritical, took)
			}
		case r.status != 0 && r.status != 200:
			refusals = append(refusals, took)
		}
	}
	t.Success, t.Critical = share(len(good), t.Count), share(len(goodCritical), critical)
	t.P50, t.P99, t.P99Crit = quantile(good, 0.5), quantile(good, 0.99), quantile(goodCritical, 0.99)
	t.Reject, t.late = quantile(refusals, 0.5), quantile(lateness, 0.99)
	return t
}

// seconds is the share that was answered in time of what came in each of the first ten seconds of the process.
func seconds(all []request, patience time.Duration) (shares []float64) {
	for i := 0; i < len(all) && len(shares) < 10; {
		end := int64(len(shares)+1) * int64(time.Second)
		good, asked := 0, 0
		for ; i < len(all) && all[i].due < end; i++ {
			asked++
			if all[i].good(patience) {
				good++
			}
		}
		shares = append(shares, share(good, asked))
	}
	return shares
}

func share[N int | uint64](part, whole N) float64 {
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

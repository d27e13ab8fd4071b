// SPDX-License-Identifier: Apache-2.0

//go:build linux

// A cell: the result of one variant with one workload, one load and one kind of clients, in one run or the median of several.

package main

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime"
	"slices"
	"time"
)

// Cell is the result of one variant. Times are in milliseconds, fractions from 0 to 1. Of several runs Goodput and Critical are
// the medians, and the rest is of the run with the median goodput.
type Cell struct {
	Workload string  `json:"workload"`
	Load     float64 `json:"load"` // relative to the capacity
	Knows    string  `json:"knows"`
	Variant  string  `json:"variant"`

	Capacity float64 `json:"capacity"` // requests per second, measured in the same run
	Offered  float64 `json:"offered"`  // requests per second
	Goodput  float64 `json:"goodput"`  // work answered in time / possible work: the offered, at most the capacity not stolen
	Ceiling  float64 `json:"ceiling"`  // the goodput that remains after the cost of rejecting the excess
	tally
	Wasted  float64   `json:"wasted"`          // fraction of executions whose client had left
	Queue   *tally    `json:"queue,omitempty"` // a priority queue with the same requests
	Seconds []float64 `json:"seconds"`         // fraction answered in time, for each of the first ten seconds of the process

	Late   float64 `json:"late_p99"`        // lateness of the generator, 99th percentile
	Stolen float64 `json:"stolen"`          // fraction of the server's cores that others used
	Doubt  string  `json:"doubt,omitempty"` // reason not to trust the cell

	Rounds []Round `json:"rounds,omitempty"` // all of them in order, if several
}

// Round is one run of a cell that has several.
type Round struct {
	Capacity float64 `json:"capacity"`
	Goodput  float64 `json:"goodput"`
	Critical float64 `json:"critical"`
	Stolen   float64 `json:"stolen"`
	Doubt    string  `json:"doubt,omitempty"`
}

// median is the cell of these runs, at least one.
func median(runs []Cell) Cell {
	if len(runs) == 1 {
		return runs[0]
	}
	var rounds []Round
	doubts := 0
	for _, c := range runs {
		if c.Doubt != "" {
			doubts++
		}
		rounds = append(rounds, Round{c.Capacity, c.Goodput, c.Critical, c.Stolen, c.Doubt})
	}
	sorted := slices.SortedFunc(slices.Values(runs), func(a, b Cell) int { return cmp.Compare(a.Goodput, b.Goodput) })
	c := sorted[(len(sorted)-1)/2]
	c.Rounds, c.Doubt = rounds, ""
	_, c.Goodput, _ = c.spread(func(r Round) float64 { return r.Goodput })
	_, c.Critical, _ = c.spread(func(r Round) float64 { return r.Critical })
	if doubts > 0 {
		c.Doubt = fmt.Sprintf("%d of %d rounds were disturbed", doubts, len(runs))
	}
	return c
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

	work, offered float64 // work answered in time, and all work, in mean requests
	late          float64
}

// plan has the durations of a run.
type plan struct {
	warm, slowWarm time.Duration
	length         time.Duration // of every cell; 0: usual, or the workload's
	usual          time.Duration
	probe          time.Duration // of measuring the capacity
	seed           uint64
}

// lab has the data that all cells of a run share.
type lab struct {
	plan
	cores  []int
	rounds float64
	root   string // of the checkout, which has flood
	dir    string // temporary
	flood  string // in dir
}

// able is the rate of responses of a server, in requests per second.
type able struct {
	capacity float64 // with work, saturated but without overload
	refusing float64 // rejecting all of them, if its processors do nothing else
}

// measure measures the capacity of a server for clients of a kind.
func (l *lab) measure(w workload, knows string) (a able, err error) {
	if knows == told {
		knows = untold // the server answers all
	}
	if w.unbound() {
		return able{capacity: atOnce / w.wait.Seconds()}, nil
	}
	if a.capacity, _, err = l.answers("none", w, knows, w.right, l.probe); err != nil {
		return a, err
	}
	_, each, err := l.answers(refuseAll, w, knows, 32, l.probe/3)
	if err == nil {
		a.refusing = float64(w.processors) / each.Seconds()
	}
	return a, err
}

// running starts a server, and describes its clients.
func (l *lab) running(binary, variant string, w workload, knows string) (at placement, s *child, c *clients, err error) {
	if at, err = place(l.cores, w.processors); err != nil {
		return at, nil, nil, err
	}
	if s, err = start(binary, serveArgs{variant, w.name, knows, l.rounds}, at); err != nil {
		return at, nil, nil, err
	}
	return at, s, &clients{l.flood, s.addr, knows, w.patience}, nil
}

// answers returns the rate of responses with n requests in flight, corrected for stolen processor time, and the server's processor
// time for each.
func (l *lab) answers(variant string, w workload, knows string, n int, length time.Duration) (perSecond float64, each time.Duration, err error) {
	at, s, c, err := l.running("", variant, w, knows)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _, _ = s.stop() }()
	if err := settle(at.generator); err != nil {
		return 0, 0, err
	}
	var before lost
	answered, err := c.closed(n, 300*time.Millisecond, length, func() (err error) {
		before, err = lostOf(at.server, s.cmd.Process.Pid)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	after, err := lostOf(at.server, s.cmd.Process.Pid)
	if err != nil || answered == 0 {
		return 0, 0, errors.Join(err, fmt.Errorf("the server answered %d requests", answered))
	}
	perSecond = float64(answered) / length.Seconds()
	if w.computes() {
		perSecond /= 1 - min(after.stolen(before, len(at.server)), 0.5) // with less left, a guess of the whole would offer anything
	}
	return perSecond, (after.ran - before.ran) / time.Duration(answered), nil
}

// ceiling is the goodput that remains when all excess requests are rejected, each at its cost.
func (a able) ceiling(w workload, load float64) float64 {
	if !w.computes() || load <= 1 {
		return 1
	}
	answer, refusal := 1/a.capacity, 1/a.refusing
	return max(0, (1-load*a.capacity*refusal)/(1-refusal/answer))
}

// run measures one cell. Equal rounds have the same requests.
func (l *lab) run(s side, w workload, load float64, knows string, a able, round int) (Cell, error) {
	cell := Cell{Workload: w.name, Load: load, Knows: knows, Variant: s.name, Capacity: a.capacity, Ceiling: a.ceiling(w, load)}
	warm, length, tail := l.warm, l.length, min(w.patience, longestTail)
	switch {
	case w.unbound(): // no bottleneck to share
		warm, tail = 0, 0
	case s.slow:
		warm = l.slowWarm
	}
	if length == 0 {
		length = max(l.usual, w.length)
	}
	h := fnv.New64()
	_, _ = fmt.Fprint(h, w.name, load)
	runtime.GC() // not during a measurement

	at, server, c, err := l.running(s.binary, s.name, w, knows)
	if err != nil {
		return cell, err
	}
	var before, after lost
	all, err := c.open(load*a.capacity, warm, length, tail, l.seed+uint64(round)^h.Sum64(), func() (err error) {
		before, err = lostOf(at.server, server.cmd.Process.Pid)
		return err
	})
	if err == nil {
		after, err = lostOf(at.server, server.cmd.Process.Pid)
	}
	executed, stopped := server.stop()
	if err != nil || stopped != nil {
		return cell, fmt.Errorf("%w; the server: %w", err, stopped)
	}
	cell.Stolen = after.stolen(before, len(at.server))
	cell.judge(all, executed, w, length)
	return cell, nil
}

// judge computes the results of a cell from its requests, and the executions in the server.
func (c *Cell) judge(all []request, executed int, w workload, length time.Duration) {
	possible := c.Capacity
	if w.computes() {
		possible *= 1 - c.Stolen
	}
	c.tally = count(all, w)
	c.Offered = float64(c.Count) / length.Seconds()
	c.Goodput = c.work / min(possible*length.Seconds(), c.offered)
	c.Late = c.late
	c.Seconds = seconds(all, w.patience)
	good := 0
	for i := range all {
		if all[i].good(w.patience) {
			good++
		}
	}
	c.Wasted = share(max(0, executed-good), executed)
	if !w.unbound() {
		queue := count(replay(all, w, possible*c.Ceiling), w)
		c.Queue = &queue
	}
	switch {
	case c.Late > ms(late):
		c.Doubt = fmt.Sprintf("the generator was late by %.1f ms", c.Late)
	case c.Stolen > tooMuch && possible < min(c.Capacity, c.Offered): // irrelevant without computing, or with time to spare
		c.Doubt = fmt.Sprintf("others took %.0f %% of the server's cores", 100*c.Stolen)
	}
}

// longestTail bounds the load that follows the requests that count.
const longestTail = 2 * time.Second

// late is the generator's lateness, and tooMuch the stolen fraction of the server's cores, above which a cell is doubted.
const (
	late    = 5 * time.Millisecond
	tooMuch = 0.1
)

// good reports an answer in time.
func (r *request) good(patience time.Duration) bool {
	return r.status == 200 && r.done <= r.overdue(patience)
}

// count tallies the requests that are counted.
func count(all []request, w workload) (t tally) {
	var good, goodCritical, refusals, lateness []time.Duration
	critical, left := 0, 0
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
		case r.status == 0:
			left++
		}
	}
	t.Success, t.Critical = share(len(good), t.Count), share(len(goodCritical), critical)
	t.P50, t.P99, t.P99Crit = quantile(good, 0.5), quantile(good, 0.99), quantile(goodCritical, 0.99)
	t.Reject, t.Reject99, t.late = quantile(refusals, 0.5), quantile(refusals, 0.99), quantile(lateness, 0.99)
	t.Refused, t.Left = share(len(refusals), t.Count), share(left, t.Count)
	return t
}

// seconds returns the fraction of requests answered in time for each of the first ten seconds of the process.
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

// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The experiment container: requests that hold more memory than there is, and neighbours on the same processor.

package main

import (
	"fmt"
	"math"
	"time"
)

const (
	softLimit = 256 * mb // GOMEMLIMIT
	hardLimit = 512 * mb // where a server is killed
)

// How a server's memory is limited: by GOMEMLIMIT, where the lab kills what holds too much; by a cgroup beside it; by a cgroup alone.
const (
	goLimit = "GOMEMLIMIT"
	cgroup  = "cgroup"
	hard    = "cgroup-alone"
	free    = "free" // enough
)

// grouped reports whether the server is in a cgroup of the hard limit.
func (g *group) grouped() bool { return g.kind == cgroup || g.kind == hard }

// env is a server's environment.
func (g *group) env() []string {
	switch {
	case g.kind == goLimit || g.kind == cgroup:
		return append(g.work.env, fmt.Sprintf("GOMEMLIMIT=%d", int64(softLimit)))
	case g.grouped():
		return append(g.work.env, "GOMEMLIMIT=off")
	}
	return g.work.env
}

// fits is how many requests can hold their memory at a time.
func (w *workload) fits() float64 { return 0.7 * softLimit / (w.holdMB * mb) }

// containerWork are the workloads, in the order of the report.
func containerWork() []workload {
	const short = 300 * time.Millisecond
	two := []string{"GOMAXPROCS=2"}
	var all []workload
	for _, tree := range []bool{false, true} {
		for _, w := range []workload{{holdMB: 20, wait: 2 * time.Second}, {holdMB: 8, wait: 2 * time.Second}, {holdMB: 8, wait: short}} {
			w.name, w.tree, w.about = "flat", tree, fmt.Sprintf("%g MB for %v", w.holdMB, w.wait)
			if tree {
				w.name, w.about = "tree", w.about+", a tree"
			}
			w.name = fmt.Sprintf("%s/%g/%v", w.name, w.holdMB, w.wait)
			w.rate, w.patience, w.warm, w.even, w.env, w.kill = w.fits()/w.wait.Seconds(), 8*time.Second, max(w.wait, time.Second), true, two, hardLimit
			all = append(all, w)
		}
	}
	for _, w := range []workload{
		{name: "beside/mixed", about: "2 ms of computing and 50 ms of waiting, 80/s", cpu: 2 * time.Millisecond, wait: 50 * time.Millisecond, rate: 80},
		{name: "beside/mixed-2x", about: "the same, 200/s: twice what is left of the core", cpu: 2 * time.Millisecond, wait: 50 * time.Millisecond, rate: 200},
		{name: "beside/computing-1x", about: "4 ms of computing, 50/s: what is left of the core", cpu: 4 * time.Millisecond, rate: 50},
		{name: "beside/computing-3x", about: "4 ms of computing, 150/s", cpu: 4 * time.Millisecond, rate: 150},
		{name: "beside/waiting", about: "100 ms of waiting, 200/s", wait: 100 * time.Millisecond, rate: 200},
	} {
		w.patience, w.warm, w.even, w.kill, w.busy = time.Second, 3*time.Second, true, hardLimit, 4
		all = append(all, w)
	}
	return append(all, workload{name: "resized", about: "4 ms of computing, 400/s; two cores, and one after 4 s", cpu: 4 * time.Millisecond, rate: 400,
		patience: time.Second, warm: 9 * time.Second, even: true, kill: hardLimit, shrinks: 4 * time.Second, env: []string{"GOMAXPROCS="}})
}

// containerGroups are the cells. A constant is compared with where GOMEMLIMIT alone limits, and has one round; where it
// is near ours, as many: the luckiest of seven single runs is none of them.
func containerGroups() (all []group) {
	both := []way{ways()[0], {name: "none", once: true}}
	for _, w := range containerWork() {
		if w.busy > 0 || w.shrinks > 0 {
			g := group{work: w, kind: free, loads: []float64{1}, ways: both}
			for _, n := range []int{1, 2, 4, 8, 16, 32, 64} {
				c := constant(n)
				c.once = w.busy > 0
				g.ways = append(g.ways[:len(g.ways):len(g.ways)], c)
			}
			all = append(all, g)
			continue
		}
		over := group{work: w, kind: goLimit, loads: []float64{4, 8}, ways: both}
		for _, part := range []float64{0.6, 0.8, 1, 1.2, 1.35, 1.8} {
			over.ways = append(over.ways[:len(over.ways):len(over.ways)], constant(int(math.Round(part*w.fits()))))
		}
		all = append(all, group{work: w, kind: goLimit, loads: []float64{1}, ways: both}, over)
		for _, kind := range []string{cgroup, hard} {
			all = append(all, group{work: w, kind: kind, loads: []float64{4, 8}, ways: both[:1]})
		}
	}
	return all
}

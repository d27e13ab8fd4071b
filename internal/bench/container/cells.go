// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The cells: what is measured, each with the ways of limiting that it compares.

package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	softLimit = 256 * mb // GOMEMLIMIT
	hardLimit = 512 * mb // where a server is killed
)

// cell is one load on one kind of work.
type cell struct {
	name      string
	work      work
	rate      float64 // requests a second
	patience  time.Duration
	warm      time.Duration
	env       []string
	group     bool // in a cgroup with the hard limit; else the lab kills at it
	kill      int64
	neighbour int // processes that compute on the server's core
	constants []int
	oracle    string // the cell whose best constant counts; "": its own
	mostLive  int64  // a constant with more than so many bytes in use broke GOMEMLIMIT, and does not count; 0: any counts
	healthy   bool   // nothing is to be limited for memory
	about     string
}

// cells returns all of them, in the order of the report.
func cells(procs, rounds int) (all []cell) {
	for _, w := range []struct {
		name string
		work work
	}{
		{"flat/20", work{HoldMB: 20, Wait: 2 * time.Second}}, {"flat/8", work{HoldMB: 8, Wait: 2 * time.Second}},
		{"flat/8-short", work{HoldMB: 8, Wait: 300 * time.Millisecond}},
		{"tree/20", work{HoldMB: 20, Wait: 2 * time.Second, Tree: true}},
		{"tree/8", work{HoldMB: 8, Wait: 2 * time.Second, Tree: true}},
		{"tree/8-short", work{HoldMB: 8, Wait: 300 * time.Millisecond, Tree: true}},
	} {
		for _, load := range []float64{1, 4, 8} {
			all = append(all, memoryCells(w.name, w.work, load)...)
		}
	}
	all = append(all, healthyCells()...)
	for i := range all {
		all[i].env = append(all[i].env, fmt.Sprintf("GOMAXPROCS=%d", procs))
	}
	return append(all, neighbourCells(rounds)...)
}

// memoryCells returns a load with GOMEMLIMIT, and with a cgroup beside it or instead of it.
func memoryCells(name string, w work, load float64) []cell {
	fits := 0.7 * softLimit / (w.HoldMB * mb)
	c := cell{
		name: fmt.Sprintf("memory/%s/%gx", name, load), work: w, rate: load * fits / w.Wait.Seconds(), patience: 8 * time.Second,
		warm: max(w.Wait, time.Second), env: []string{fmt.Sprintf("GOMEMLIMIT=%d", int64(softLimit))}, kill: hardLimit,
		mostLive: softLimit, healthy: load <= 1,
		about: fmt.Sprintf("%.1f/s, %.0f fit", load*fits/w.Wait.Seconds(), fits),
	}
	for _, part := range []float64{0.6, 0.8, 1, 1.2, 1.35, 1.8} {
		c.constants = append(c.constants, int(math.Round(part*fits)))
	}
	if load <= 1 {
		c.constants = nil
		return []cell{c}
	}
	grouped, hard := c, c
	grouped.name, grouped.group, grouped.oracle, grouped.constants = c.name+"/cgroup", true, c.name, nil
	// Without GOMEMLIMIT the heap doubles before a collection: as much fits into a group of twice the size.
	hard.name, hard.group, hard.env, hard.mostLive = c.name+"/hard", true, []string{"GOMEMLIMIT=off"}, 0
	return []cell{c, grouped, hard}
}

func healthyCells() []cell {
	small := cell{patience: 8 * time.Second, warm: time.Second, kill: hardLimit, healthy: true}
	cache, off, none := small, small, small
	cache.name, cache.about = "healthy/cache", "requests that hold 64 kB for 50 ms, beside a cache that grows to 0.6 of the limit"
	cache.work = work{HoldMB: 1.0 / 16, Wait: 50 * time.Millisecond, CacheMB: 6 * softLimit / mb / 10, CacheIn: 6 * time.Second}
	cache.rate, cache.env = 100, []string{fmt.Sprintf("GOMEMLIMIT=%d", int64(softLimit))}
	off.name, off.about = "healthy/gogc-off", "GOGC=off: requests that make 2 MB of garbage, and hold 64 kB for 20 ms"
	off.work, off.rate = work{ChurnMB: 2, HoldMB: 1.0 / 16, Wait: 20 * time.Millisecond}, 100
	off.env = []string{fmt.Sprintf("GOMEMLIMIT=%d", int64(softLimit)), "GOGC=off"}
	none.name, none.about = "healthy/no-limit", "neither GOMEMLIMIT nor a cgroup: 8 MB for 300 ms"
	none.work, none.rate, none.env = work{HoldMB: 8, Wait: 300 * time.Millisecond}, 90, []string{"GOMEMLIMIT=off"}
	none.kill = 4 << 30
	return []cell{cache, off, none}
}

// neighbourCells returns loads on a core of which four other processes take four fifths.
func neighbourCells(rounds int) (all []cell) {
	for _, w := range []struct {
		name, about string
		work        work
		rate        float64
	}{
		{"mixed", "2 ms of computing and 50 ms of waiting, 80/s", work{Rounds: 2 * rounds, Wait: 50 * time.Millisecond}, 80},
		{"mixed-2x", "the same, 200/s: twice what is left of the core", work{Rounds: 2 * rounds, Wait: 50 * time.Millisecond}, 200},
		{"computing-1x", "4 ms of computing, 50/s: what is left of the core", work{Rounds: 4 * rounds}, 50},
		{"computing-3x", "4 ms of computing, 150/s", work{Rounds: 4 * rounds}, 150},
		{"waiting", "100 ms of waiting, 200/s", work{Wait: 100 * time.Millisecond}, 200},
	} {
		all = append(all, cell{
			name: "neighbour/" + w.name, about: w.about, work: w.work, rate: w.rate, patience: time.Second, warm: 3 * time.Second,
			env: []string{"GOMAXPROCS=1"}, kill: hardLimit, neighbour: 4, constants: []int{1, 2, 4, 8, 16, 32, 64},
		})
	}
	return all
}

// modes returns the ways of limiting of a cell's round, in an order that alternates. Bare servers and constants run in the
// first rounds only.
func (c *cell) modes(wanted []string, round, others int) []string {
	all := []string{}
	if slices.Contains(wanted, "ours") {
		all = append(all, "ours")
	}
	if round < others && slices.Contains(wanted, "bare") {
		all = append(all, "bare")
	}
	if round < others && slices.Contains(wanted, "constants") {
		for _, n := range c.constants {
			all = append(all, fmt.Sprint(n))
		}
	}
	if round%2 == 1 {
		slices.Reverse(all)
	}
	return all
}

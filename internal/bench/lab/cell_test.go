// SPDX-License-Identifier: Apache-2.0

//go:build linux

// A cell is measured and judged as it says.

package main

import (
	"math"
	"testing"
	"time"
)

func mustWork(t *testing.T, name string) *group {
	t.Helper()
	w, err := workNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	return &group{work: w, kind: untold}
}

func at(d time.Duration) int64 { return int64(d) }

const msec = time.Millisecond

// Goodput is work, of what the server could do and of what was asked; those who do not count do not.
func TestJudge(t *testing.T) {
	w := mustWork(t, "costs")
	all := []request{
		// while warming up
		{due: 0, sent: 1, done: at(10 * msec), status: 200},
		{due: at(1000 * msec), sent: at(1000 * msec), done: at(1010 * msec), status: 200, counted: true},                 // light
		{due: at(1100 * msec), sent: at(1100 * msec), done: at(1300 * msec), status: 200, heavy: true, counted: true},    // heavy
		{due: at(1200 * msec), sent: at(1200 * msec), done: at(1451 * msec), status: 200, critical: true, counted: true}, // late
		{due: at(1300 * msec), sent: at(1301 * msec), done: at(1303 * msec), status: 503, critical: true, counted: true}, // refused
		{due: at(1400 * msec), sent: at(1400 * msec), done: at(1410 * msec), status: 200, critical: true, counted: true}, // critical
		{due: at(1500 * msec), counted: true}, // not even sent
		{due: at(1600 * msec), counted: true, broken: true},
		{due: at(2100 * msec), sent: at(2100 * msec), done: at(2110 * msec), status: 200}, // in the tail
	}
	c := Cell{Lab: "overload", Capacity: 10, Ceiling: 1, Stolen: 0.05}
	c.judge(all, w, 2*time.Second)
	if c.Refused != 1.0/7 || c.Left != 1.0/7 || c.Broken != 1.0/7 || c.Reject99 != 3 {
		t.Errorf("refused %v, left %v, broken %v, noes %v", c.Refused, c.Left, c.Broken, c.Reject99)
	}
	if c.Count != 7 || c.Unsent != 1 || c.Success != 3.0/7 || c.Critical != 1.0/3 || c.Offered != 3.5 || c.Reject != 3 || c.P99 != 200 ||
		c.P99Crit != 10 {
		t.Errorf("%+v", c)
	}
	mean := 0.9*1 + 0.1*30
	if want := (30 + 1 + 1) / mean / min(2*10*0.95, (30+6)/mean); math.Abs(c.Goodput-want) > 1e-9 {
		t.Errorf("goodput %v, want %v", c.Goodput, want)
	}
	if c.Doubt != "" || c.Queue == nil {
		t.Errorf("doubt %q, queue %v", c.Doubt, c.Queue)
	}
	unknown := Cell{Lab: "container"} // of a capacity that nobody knows: answers in time per second
	if unknown.judge(all, mustWork(t, "flat/8/2s"), 2*time.Second); unknown.Goodput != 2 || unknown.Queue != nil {
		t.Errorf("%+v", unknown)
	}
	w.work.service = &service{} // from cold: the first five seconds are not for the critical
	all[5].due += at(5 * time.Second)
	all[5].done += at(5 * time.Second)
	if got := count(all, w).Critical; got != 1 {
		t.Errorf("critical %v, want that of one", got)
	}
}

// A cell is doubted if the generator was late, or if others took what the server would have needed.
func TestDoubt(t *testing.T) {
	punctual := []request{{due: at(0), sent: 1, done: 2, status: 200, counted: true}}
	tardy := []request{{due: at(0), sent: at(6 * msec), done: at(7 * msec), status: 200, counted: true}}
	for _, c := range []struct {
		name     string
		all      []request
		workload string
		capacity float64
		stolen   float64
		doubted  bool
	}{
		{"quiet", punctual, "cpu4", 0.9, 0.05, false},
		{"late", tardy, "cpu4", 0.9, 0, true},
		{"short of its core", punctual, "cpu4", 0.9, 0.2, true},
		{"short, but with enough left", punctual, "cpu4", 10, 0.2, false},
		{"short of what it does not need", punctual, "downstream", 0.9, 0.2, false},
	} {
		cell := Cell{Lab: "overload", Capacity: c.capacity, Ceiling: 1, Stolen: c.stolen}
		if cell.judge(c.all, mustWork(t, c.workload), time.Second); (cell.Doubt != "") != c.doubted {
			t.Errorf("%s: %q", c.name, cell.Doubt)
		}
	}
}

// Refusing costs what it costs, and only a processor pays.
func TestCeiling(t *testing.T) {
	a := able{capacity: 100, refusing: 1000} // 10 ms and 1 ms
	// In a second x are answered and 400-x refused: 10x + (400-x) = 1000.
	for load, want := range map[float64]float64{4: 600.0 / 9 / 100, 0.7: 1, 20: 0} {
		if got := a.ceiling(load); math.Abs(got-want) > 1e-9 {
			t.Errorf("at %g×: %v, want %v", load, got, want)
		}
	}
	if got := (able{capacity: 100}).ceiling(4); got != 1 {
		t.Errorf("without computing: %v", got)
	}
}

// The queue takes the critical first, each priority in order, ends what it has begun, and begins nothing that would be late.
func TestReplay(t *testing.T) {
	w := mustWork(t, "cpu4") // patience of 250 ms; 100 ms each at 10 a second
	all := []request{
		{due: at(0)},
		{due: at(10 * msec)},
		{due: at(20 * msec)},
		{due: at(30 * msec), critical: true}, // overtakes both
		{due: at(1000 * msec), critical: true, counted: true},
	}
	out := replay(all, w, 10)
	// the second would be done at 300 ms, for a client that leaves at 260
	want := []int64{at(100 * msec), 0, 0, at(200 * msec), at(1100 * msec)}
	for i, r := range out {
		if r.done != want[i] || (r.status == 200) != (want[i] > 0) || r.due != all[i].due || r.critical != all[i].critical ||
			r.counted != all[i].counted {
			t.Errorf("request %d: %+v, want it done at %v", i, r, time.Duration(want[i]))
		}
	}
	if bound := replay(all, mustWork(t, "downstream"), 250); bound[3].done != at(70*msec) || bound[1].done != at(50*msec) {
		t.Errorf("ten connections: %+v", bound)
	}
	if mixed := replay(all, mustWork(t, "mixed"), 250); mixed[0].done != at(24*msec) || mixed[1].done != at(34*msec) {
		t.Errorf("waiting beside computing: %+v", mixed)
	}
}

// Of several rounds the figures that are compared are medians, the others of the middle round, and all rounds stay.
func TestMedian(t *testing.T) {
	run := func(goodput, critical float64) Cell {
		return Cell{Goodput: goodput, Offered: 10 * goodput, tally: tally{Critical: critical}}
	}
	one := run(0.5, 0.95)
	one.Doubt = "late"
	if got := median([]Cell{one}); got.Rounds != nil || got.Doubt != "late" || got.Goodput != 0.5 {
		t.Errorf("of one: %+v", got)
	}
	runs := []Cell{one, run(0.9, 0.7), run(0.8, 0.9)}
	runs[2].Capacity, runs[2].Stolen, runs[2].Inside, runs[1].Inside = 2, 0.01, &inside{}, &inside{Killed: 3}
	got := median(runs)
	if got.Goodput != 0.8 || got.Critical != 0.9 || got.Offered != 8 || got.Capacity != 2 || got.killed() != 3 ||
		got.Doubt != "1 of 3 rounds were disturbed" {
		t.Errorf("of three: %+v", got)
	}
	if len(got.Rounds) != 3 || got.Rounds[0].Doubt != "late" || got.Rounds[2] != (Round{2, 0.8, 0.9, 0.01, 0, ""}) {
		t.Errorf("rounds %+v", got.Rounds)
	}
}

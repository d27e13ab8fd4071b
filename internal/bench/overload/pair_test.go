// SPDX-License-Identifier: Apache-2.0

//go:build linux

// A pair is judged by the probes beside it, and its difference by what the pairs scatter.

package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain is a server where the lab starts this binary as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "-serve" {
		exit(serve(os.Args[2]))
	}
	os.Exit(m.Run())
}

// Pairs alternate their order, share the probe between them, and are void if the probes beside them differ by more than 5 %: such
// a pair is repeated, at most three times.
func TestPairUp(t *testing.T) {
	for _, c := range []struct {
		name       string
		capacities []float64
		order      string // the capacity and side of each run
		kept       []int
		void       int
	}{
		{"steady", []float64{100, 104, 100, 103}, "100A 100B 104B 104A 100A 100B", []int{0, 1, 2}, 0},
		{"one of them void", []float64{100, 106, 105, 105, 106}, "100A 100B 106A 106B 105B 105A 105A 105B", []int{0, 1, 2}, 1},
		{"slower is no better", []float64{106, 100, 100, 100, 100}, "106A 106B 100A 100B 100B 100A 100A 100B", []int{0, 1, 2}, 1},
		{
			"given up after three repetitions", []float64{100, 200, 100, 200, 100, 101, 102},
			"100A 100B 200A 200B 100A 100B 200A 200B 100B 100A 101A 101B", []int{1, 2}, 4,
		},
		{"nothing was answered", []float64{0, 100, 100, 100, 100}, "0A 0B 100A 100B 100B 100A 100A 100B", []int{0, 1, 2}, 1},
	} {
		probes, order := c.capacities, []string{}
		kept, void, err := pairUp(3, func() (able, error) {
			a := able{capacity: probes[0]}
			probes = probes[1:]
			return a, nil
		}, func(side, pair int, can able) (Cell, error) {
			order = append(order, fmt.Sprintf("%g%c", can.capacity, "AB"[side]))
			return Cell{Load: float64(pair), Offered: float64(side)}, nil
		})
		if err != nil || void != c.void || strings.Join(order, " ") != c.order || len(probes) > 0 {
			t.Errorf("%s: %d void, order %v, %d probes left: %v", c.name, void, order, len(probes), err)
		}
		var which []int
		for _, p := range kept {
			which = append(which, int(p[0].Load))
			if p[0].Offered != 0 || p[1].Offered != 1 || p[0].Load != p[1].Load {
				t.Errorf("%s: a pair of %+v", c.name, p)
			}
		}
		if !slices.Equal(which, c.kept) {
			t.Errorf("%s: kept %v, want %v", c.name, which, c.kept)
		}
	}
}

// Errors end the comparison, wherever they come from.
func TestPairUpFails(t *testing.T) {
	for failing := range 4 { // a probe, two runs, a probe
		step := 0
		next := func() error {
			if step++; step > failing {
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		kept, _, err := pairUp(2, func() (able, error) { return able{capacity: 1}, next() },
			func(int, int, able) (Cell, error) { return Cell{}, next() })
		if err == nil || kept != nil || step != failing+1 {
			t.Errorf("failing at step %d: %v after %d steps, kept %v", failing, err, step, kept)
		}
	}
}

func pairsOf(differences ...float64) (pairs [][2]Cell) {
	for i, d := range differences {
		a := float64(i) // what the pair has in common
		pairs = append(pairs, [2]Cell{{Goodput: a}, {Goodput: a + d}})
	}
	return pairs
}

// The interval is Student's: wide for few pairs, nothing where all agree, and unknown for one.
func TestDifference(t *testing.T) {
	goodput := func(c *Cell) float64 { return c.Goodput }
	for _, c := range []struct {
		differences []float64
		mean, half  float64
	}{
		{[]float64{1, 2, 3}, 2, 4.302653 / math.Sqrt(3)},
		{[]float64{-1, 1, -1, 1, -1, 1, -1, 1, -1, 1}, 0, 2.262157 * math.Sqrt(10.0/9/10)},
		{[]float64{0.5, 0.5, 0.5}, 0.5, 0},
		{[]float64{0.25}, 0.25, math.Inf(1)},
		{nil, 0, math.Inf(1)},
	} {
		mean, half := difference(pairsOf(c.differences...), goodput)
		if math.Abs(mean-c.mean) > 1e-9 || half != c.half && !(math.Abs(half-c.half) < 1e-5) {
			t.Errorf("%v: %v ± %v, want %v ± %v", c.differences, mean, half, c.mean, c.half)
		}
	}
}

// A row says what differs beyond chance, and nothing where every pair was void.
func TestRow(t *testing.T) {
	g := groupsOf(t, selection{workloads: "cpu4", knows: untold})[0]
	pairs := pairsOf(0.1, 0.12, 0.11)
	pairs[1][0].Doubt = "late"
	want := "| 4 ms of computing in one piece | 2× | untold | 3 | 1 | 1 | 1.000, 1.110: +0.110 ± 0.025 * | 0.000, 0.000: +0.000 ± 0.000 |  |\n"
	if got := row(g, 2, pairs, 1); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := row(g, 2, nil, 4), "| 4 ms of computing in one piece | 2× | untold | 0 | 4 | 0 |  |  |  |\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestSides(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	sides, err := sidesNamed("warden,failsafe@" + self)
	if err != nil || sides[0].name != "warden" || sides[0].binary != "" || sides[1].name != "failsafe" || sides[1].binary != self {
		t.Errorf("%v, %v", sides, err)
	}
	for _, text := range []string{"", "warden", "warden,best", "warden,warden,warden", "warden,warden@" + self + "/nothing"} {
		if _, err := sidesNamed(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

// Two sides of real servers, one of another binary, over real HTTP: each pair is kept or void, and the lines say what was
// measured.
func TestCompareForReal(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	sides, err := sidesNamed("warden-pool,warden@" + self)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{root: "../../..", plan: plan{warm: 100 * time.Millisecond, length: 700 * time.Millisecond, probe: 200 * time.Millisecond, seed: 1}}
	var out strings.Builder
	// No connection to a pool in the first: not compared.
	if err := compare(l, groupsOf(t, selection{workloads: "cpu4,downstream", loads: "2", knows: untold}), sides, 2,
		&out); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(out.String(), "|---|---|---|---|---|---|---|---|---|\n")
	var kept, void int
	if n, err := fmt.Sscanf(table, "| 40 ms on one of 10 connections | 2× | untold | %d | %d |", &kept, &void); n != 2 ||
		strings.Count(table, "\n") != 1 {
		t.Fatalf("%v in\n%s", err, &out)
	}
	ofA, ofB := strings.Count(out.String(), "  A\n"), strings.Count(out.String(), "  B\n")
	if kept > 2 || kept+void < 2 || ofA != kept+void || ofB != ofA || strings.Count(out.String(), "untold warden-pool ") != ofA {
		t.Errorf("%d pairs kept, %d void, in\n%s", kept, void, &out)
	}
}

// SPDX-License-Identifier: Apache-2.0

//go:build linux

// What is chosen, what a server does for whom, what pairs say, and what the pages say of cells.

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
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

// -only chooses by the name of a cell, peers without a chance and what has one round have no other, and the order alternates.
func TestTurn(t *testing.T) {
	g := overloadGroups()[0]
	names := func(round int, runs map[string][]Cell) (all string) {
		for _, w := range g.turn(regexp.MustCompile("^cpu4/2x/(un)?told/(warden|aegis|f|gradient)"), 2, round, runs) {
			all += " " + w.name
		}
		return all
	}
	runs := func(failsafe, prio, gradient float64) map[string][]Cell {
		return map[string][]Cell{"warden": {{}}, "aegis": {{}}, "failsafe": {{Goodput: failsafe}, {Goodput: 0}}, "failsafe-prio": {{Goodput: prio}},
			"gradient2": {{Goodput: gradient}}}
	}
	for _, c := range []struct {
		round int
		runs  map[string][]Cell
		want  string
	}{
		{0, nil, " warden failsafe failsafe-prio gradient2 aegis"},
		{1, runs(0.9, 0.79, 0.81), " gradient2 failsafe warden"},
		{2, runs(0.9, 0.79, 0.81), " warden failsafe gradient2"},
		{2, runs(0.09, 0.1, 0), " warden failsafe-prio"},
	} {
		if got := names(c.round, c.runs); got != c.want {
			t.Errorf("round %d:%s, want%s", c.round, got, c.want)
		}
	}
	g = overloadGroups()[1] // told: what engages with a busy processor only has nothing to do
	if got := names(0, nil); got != " warden failsafe failsafe-prio gradient2" {
		t.Errorf("told:%s", got)
	}
	for _, e := range experiments() {
		l := &lab{experiment: e, only: regexp.MustCompile("/4x/.*(warden|ours)$")}
		if n := len(l.chosen()); n == 0 || n == len(e.groups()) {
			t.Errorf("%s: %d groups", e.name, n)
		}
	}
	for _, args := range [][]string{{}, {"overlord"}, {"caddy", "-rounds", "0"}, {"caddy", "-only", "nothing"}, {"caddy", "more"}} {
		if run(args) == nil {
			t.Errorf("%q: no error", args)
		}
	}
}

// The server tells the work when the client leaves if it is to be told, and work ends with a client who has left.
func TestHandler(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, kind := range []string{untold, told} {
		k, err := newWorker(workload{connections: 1, holdMB: 1, patience: time.Second}, kind, 0)
		if err != nil {
			t.Fatal(err)
		}
		var deadline bool
		h, err := newHandler(way{mount: func(work http.Handler, _ *worker) (http.Handler, error) {
			return admitting(work, func(r *http.Request) (func(), bool) {
				_, deadline = r.Context().Deadline()
				return func() {}, true
			}), nil
		}}, k, kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, ctx := range []context.Context{t.Context(), gone} {
			k.wait = map[bool]time.Duration{true: time.Hour}[ctx == gone]
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodPost, path(true, true), strings.NewReader("body")))
			if want := map[bool]int{true: 504, false: 200}[ctx == gone]; rec.Code != want || deadline != (kind == told) {
				t.Errorf("%s: %d, want %d; deadline %v", kind, rec.Code, want, deadline)
			}
		}
	}
}

// Differences are of rounds, and their interval is Student's: half of it is 4.30 deviations of the mean of three.
func TestDifferences(t *testing.T) {
	var ours, others []Cell
	for i, d := range []float64{0.1, 0.12, 0.11} {
		common := float64(i)
		others, ours = append(others, Cell{Workload: "cpu4", Load: 2, Goodput: common}), append(ours, Cell{Workload: "cpu4", Load: 2, Goodput: common + d})
	}
	want := "more than before, cpu4 2×: goodput +0.110 ± 0.025 *; critical +0.000 ± 0.000; p99 of critical, ms +0.000 ± 0.000;\n"
	if got := differences(ours, others); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := differences(ours[:1], others); got != "" {
		t.Errorf("of one round: %s", got)
	}
}

// Two builds, over real HTTP, in turn.
func TestForReal(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{experiment: experiments()[0], root: "../../..", rounds: 2, before: self,
		only: regexp.MustCompile("^wait500ms/0.03x/untold/")}
	defer l.close()
	if err := l.prepare(); err != nil {
		t.Fatal(err)
	}
	r := &report{}
	groups := l.chosen()
	l.length, groups[0].work.length = time.Second, 0
	if err := l.measure(groups, r, ""); err != nil {
		t.Fatal(err)
	}
	for _, way := range []string{"warden", "warden" + before} {
		if c := r.find("wait500ms", 0.03, untold, way); c == nil || len(c.Rounds) != 2 || c.Success < 0.5 {
			t.Errorf("%s: %+v", way, c)
		}
	}
}

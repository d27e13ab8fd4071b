// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	served()
	os.Exit(m.Run())
}

// TestPrograms: to a program's clients, it is the same behind README's lines as bare. A pair of runs in which something differs is made
// again, three times in all: on a machine that others use, a request may miss its half a second by chance, and a fault of ours does not
// depend on that. With -short it leaves Centrifugo out, whose first build takes three minutes.
func TestPrograms(t *testing.T) {
	for _, p := range programs() {
		t.Run(p.name, func(t *testing.T) {
			if testing.Short() && p.name == "centrifugo" {
				t.Skip("make programs and go test without -short build it")
			}
			var differ []string
			for try := range 3 {
				if differ = compareOnce(t, p); len(differ) == 0 {
					return
				}
				t.Logf("run %d: %s", try+1, strings.Join(differ, "; "))
			}
			t.Errorf("%s", strings.Join(differ, "; "))
		})
	}
}

// compareOnce runs a program bare and protected, and returns the rows that differ, or in which even the bare one lost something.
func compareOnce(t *testing.T, p program) (differ []string) {
	t.Helper()
	alone, err := p.run(t.Context(), bare)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := p.run(t.Context(), protected)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range alone.rows() {
		got, want := ours.row(what), alone.row(what)
		if got != want || len(alone.ends[what]) != 1 || alone.ends[what][whole] == 0 {
			differ = append(differ, what+": "+got+"; bare: "+want)
		}
	}
	return differ
}

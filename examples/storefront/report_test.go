package main

// The printed table: its width, and no share that looks better than it is.

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestReportFitsInto100Columns(t *testing.T) {
	var out bytes.Buffer
	sc := incident()
	shared, isolated := good()
	for p := range phases {
		for r := range routes {
			f := &shared.figures[p][r]
			f.p50, f.p99 = 251*time.Millisecond, 10*time.Second
		}
	}
	printIntro(&out, sc, 1)
	for i, w := range ways {
		printWay(&out, i+1, w.name)
		printMoment(&out, moment{12 * time.Second, rollback, shared.figures[slow], "50/50  30/30  15/15  5/5"})
	}
	printTable(&out, []result{shared, isolated})
	findings, holds := judge(shared, isolated, demoLimits)
	printVerdict(&out, findings, holds)
	printVerdict(&out, findings, false)
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestShareNeverRoundsUp(t *testing.T) {
	for x, want := range map[float64]string{1: "1.000", 0.99999: "0.999", 0.99: "0.990", 0.29: "0.290", 0: "0.000"} {
		if got := share(x); got != want {
			t.Errorf("share(%v) = %s, want %s", x, got, want)
		}
	}
}

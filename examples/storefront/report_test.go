package main

// What is printed: its width, and no share that looks better than it is.

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestReportFitsInto130Columns(t *testing.T) {
	var out bytes.Buffer
	pool, apart := good()
	printIntro(&out, incident(), "PostgreSQL", 1)
	printOverload(&out, overload())
	printWay(&out, 1, 4, "compartments only, while a sale overloads the processor", poolsApart(incident()))
	printMoment(&out, moment{12 * time.Second, rollback, pool.in(slow), "70/70  40/40  30/30  10/10"})
	story{titles: []string{"a", "b"}, results: []result{pool, apart}, findings: judgeIncident(pool, apart), moral: "Good."}.print(&out)
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 130 && !strings.HasPrefix(line, "ok ") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if !strings.Contains(out.String(), "20 times as fast") || !strings.Contains(out.String(), "VERDICT: holds. Good.") {
		t.Error(out.String())
	}
}

func TestShareNeverRoundsUp(t *testing.T) {
	for x, want := range map[float64]string{1: "1.000", 0.99999: "0.999", 0.99: "0.990", 0.29: "0.290", 0: "0.000"} {
		if got := share(x); got != want {
			t.Errorf("share(%v) = %s, want %s", x, got, want)
		}
	}
}

func TestReasonsAreSorted(t *testing.T) {
	f := figures{failed: map[string]int{"b": 1, "a": 1, "c": 7}, cached: map[string]int{"d": 9}}
	if got, want := f.reasons(), "c 7, a 1, b 1, cached: d 9"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// SPDX-License-Identifier: Apache-2.0

// The scenarios: a short slice with its limits for every day, and all of them for the page.

package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestSlice(t *testing.T) {
	for _, sc := range []*World{bound(2, 4*ms, 0.7), bound(2, 4*ms, 4), bound(8, 4*ms, 2), mixed(2, 2), downstream(2, 10, 0.7),
		downstream(2, 10, 2)} {
		tried, err := Compare(sc, inBubble(t))
		must(t, err)
		must(t, tried.Try(inBubble(t), true, "ours"))
		if misses := tried.Misses(); len(misses) > 0 {
			t.Errorf("misses %v\n%s", misses, ScenarioTable(tried))
		}
		if ours := tried.Laws[0].Warm.Share(); sc.Load() < 0.8 && ours < 0.999 {
			t.Errorf("%.4f of all answers in time\n%s", ours, ScenarioTable(tried))
		}
	}
}

// The model must be right before anything can be said about the law: without a limit, processors under twice their
// load answer nobody in time, and the sensor says so.
func TestModel(t *testing.T) {
	limitless := func(w *World) *Result { return try(t, w, Static(1<<20), true) }
	sc := bound(2, 4*ms, 2)
	sc.Kinds[0].Patience, sc.Kinds[0].Knows = 0.1, "hidden"
	open := limitless(sc)
	if open.Goodput() > 0.05 {
		t.Errorf("without a limit: goodput %.3f", open.Goodput())
	}
	if jam := open.points[100].sample; jam.Runnable.Value < 20 || jam.Utilization.Value < 0.99 || jam.Lag.P90 < 100*ms {
		t.Errorf("a jam looks like %+v", jam)
	}
	if easy := limitless(bound(2, 4*ms, 0.5)); easy.Warm.Share() < 0.9999 || easy.Latency(0.5, false) > 8*ms {
		t.Errorf("half the load: %.4f in time, median %v", easy.Warm.Share(), easy.Latency(0.5, false))
	}
	if jam := limitless(downstream(2, 10, 2)); jam.Goodput() > 0.05 {
		t.Errorf("a dependency without a limit: goodput %.3f", jam.Goodput())
	}
}

// What a spell disturbs is disturbed as long as it lasts, and no longer.
func TestSpells(t *testing.T) {
	for _, c := range []struct {
		what  string
		w     *World
		spell Spell
		left  float64 // of the usual rate of executions
	}{
		{"a quarter of the processors", bound(8, 16*ms, 5), Spell{Cores: 2}, 0.25},
		{"no processors", bound(8, 16*ms, 5), Spell{Pause: true}, 0},
		{"calls five times slower", downstream(8, 10, 5), Spell{Slow: 5}, 0.2},
		{"fewer users", bound(8, 16*ms, 0.8), Spell{Rate: 0.2 * bound(8, 16*ms, 1).Peak}, 0.25},
		{"down", bound(8, 16*ms, 5), Spell{Down: true}, 0},
	} {
		c.w.Length = 10
		usual := try(t, c.w, Static(40), false)
		for _, from := range []float64{0, 5} {
			c.spell.From, c.spell.Until = from, from+5
			c.w.Spells = []Spell{c.spell}
			got := try(t, c.w, Static(40), false)
			near(t, fmt.Sprint(c.what, " from ", from), float64(got.Executed)/float64(usual.Executed), (1+c.left)/2, 0.05)
		}
	}
	blind := bound(2, 4*ms, 1)
	blind.Spells = []Spell{{From: 4, Until: 8, Blind: true}}
	for _, p := range try(t, blind, Ours, true).points {
		if at := p.at.Seconds(); at >= 4 && at < 8 {
			t.Fatalf("a sample at %v", p.at)
		}
	}
}

// A container that gets smaller, or larger, serves what one serves that always had its size.
func TestResized(t *testing.T) {
	for _, c := range []struct {
		from, to int
		cost     time.Duration
	}{
		{32, 4, 50 * ms}, {16, 4, 50 * ms}, {16, 2, 50 * ms}, {8, 1, 50 * ms}, {16, 1, 16 * ms}, {2, 1, 4 * ms}, {8, 2, 4 * ms},
		{1, 8, 16 * ms}, {4, 32, 50 * ms},
	} {
		w := bound(c.to, c.cost, 2)
		w.Warm, w.Length = 12, 25
		want := try(t, w, Ours, false)
		w.Cores, w.Spells = max(c.from, c.to), []Spell{{Until: 7, Cores: c.from}, {From: 7, Until: 25, Cores: c.to}}
		got := try(t, w, Ours, false)
		good, critical := got.Goodput()/want.Goodput(), got.Warm.CriticalShare()-want.Warm.CriticalShare()
		if good < 0.95 || critical < -0.05 {
			t.Errorf("%d to %d processors, %v: goodput %.3f of one that always had them, critical %+.3f",
				c.from, c.to, c.cost, good, critical)
		}
	}
}

// TestSim is `make sim`.
func TestSim(t *testing.T) {
	if *write == "" {
		t.Skip("runs in `make sim`; TestSlice is the slice of it for every day")
	}
	var trials []*Trial
	for _, sc := range Scenarios() {
		began := time.Now()
		tried, err := Compare(sc, inBubble(t))
		must(t, err)
		must(t, tried.Try(inBubble(t), true, "ours"))
		trials = append(trials, tried)
		fmt.Println(strings.Split(ScenarioTable(tried), "\n")[2], time.Since(began).Round(ms))
	}
	rewrite(t, "simulation", ScenarioSummary(trials), ScenarioTable(trials...))
}

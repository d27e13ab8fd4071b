// SPDX-License-Identifier: Apache-2.0

// The engine must be right before anything can be said about a law: beside queueing theory, beside itself, and to the last
// request.

package sim

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/monitor"
)

// patient is a world of one kind of request, patient without end.
func patient(service float64, spread string, share float64, cores, places int, load, requests float64) *World {
	k := Kind{Of: 1, Service: service, Share: share, Spread: spread, Patience: 1e6, Knows: "hidden", Critical: 0.2, Normal: 0.8}
	w := &World{Seed: 1, Kinds: []Kind{k}, Cores: cores, Places: places, Shape: "steady"}
	capacity := math.Inf(1) // without the cost of arrival
	if share > 0 {
		capacity = float64(cores) / (share * service)
	}
	if places > 0 {
		capacity = min(capacity, float64(places)/((1-share)*service))
	}
	w.Peak = load * capacity
	w.Length = requests / w.Peak
	return w
}

// near fails unless got is want, but for that share of it.
func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance*want) {
		t.Errorf("%s: %.4g, theory says %.4g", what, got, want)
	}
}

// erlangC is the mean wait for one of c servers, in service times, at this load.
func erlangC(c int, load float64) float64 {
	offered, sum, term := load*float64(c), 0.0, 1.0
	for k := range c {
		sum += term
		term *= offered / float64(k+1)
	}
	wait := term / (1 - load)
	return wait / (sum + wait) / (float64(c) * (1 - load))
}

func TestQueueingTheory(t *testing.T) {
	per := func(d time.Duration, r *Result, w *World) float64 {
		return d.Seconds() / float64(r.Executed) / w.service()
	}

	// M/D/1: the wait is ρ/2(1-ρ).
	w := patient(0.05, "exact", 0, 64, 1, 0.7, 200_000)
	r := try(t, w, Open, false)
	near(t, "M/D/1, a dependency", per(r.Took, r, w), 1+0.7/(2*0.3), 0.03)

	// M/M/c: Erlang's C.
	w = patient(0.05, "exponential", 0, 64, 5, 0.8, 200_000)
	r = try(t, w, Open, false)
	near(t, "M/M/5, a dependency", per(r.Took, r, w), 1+erlangC(5, 0.8), 0.03)

	// The limiter with five places is the same queue, before the service and not in it.
	w = patient(0.05, "exponential", 0, 64, 5, 0.8, 100_000)
	w.Places = 0
	r = try(t, w, Static(5), false)
	near(t, "M/M/5, the limiter", per(r.Waited, r, w), erlangC(5, 0.8), 0.05)
	near(t, "M/M/5, the limiter's executions", per(r.Took, r, w), 1, 0.03)

	// Slices much shorter than the work share the processor: whatever the spread, all take 1/(1-ρ).
	for _, spread := range []string{"exact", "exponential", "1:40"} {
		w = patient(1, spread, 1, 1, 0, 0.6, 40_000)
		r = try(t, w, Open, false)
		near(t, "processor sharing, "+spread, per(r.Took, r, w), 1/(1-0.6), 0.06)
		near(t, "utilization, "+spread, r.Computed.Seconds()/r.Elapsed.Seconds(), 0.6, 0.02)
	}

	// A limiter with one place in front of one processor is M/G/1, first come first served: ρ/(1-ρ) for M/M/1.
	w = patient(0.004, "exponential", 1, 1, 0, 0.6, 100_000)
	r = try(t, w, Static(1), false)
	near(t, "M/M/1, the limiter and a processor", per(r.Waited, r, w), 0.6/(1-0.6), 0.06)
}

// Every attempt has one end, and the check that says so would notice.
func TestNothingIsLost(t *testing.T) {
	w := Draw(69)
	r := try(t, w, Ours, false)
	if r.All.Offered != len(w.users()) || r.Refused == 0 || r.stats.Submitted == 0 {
		t.Fatalf("%d users, %+v", len(w.users()), r)
	}
	for what, spoil := range map[string]func(*Result){
		"attempts":               func(r *Result) { r.Refused++ },
		"users":                  func(r *Result) { r.All.Good-- },
		"the limiter's counters": func(r *Result) { r.stats.Executed++ },
		"processor time":         func(r *Result) { r.Elapsed = r.Computed / time.Duration(2*w.Cores) },
	} {
		worse := *r
		spoil(&worse)
		if err := worse.check(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A seed says all, though waiters are goroutines.
func TestSameSeedSameRun(t *testing.T) {
	told := map[string]int{}
	same := func(w *World, g Guard) string {
		var runs [2]string
		for k := range runs {
			r := try(t, w, g, true)
			var b strings.Builder
			r.Timeline(&b, len(r.points))
			told[w.Kinds[0].Knows] += r.Refused
			r.points, r.users, r.World = nil, nil, nil
			runs[k] = fmt.Sprintf("%s%+v", b.String(), *r)
		}
		if runs[0] != runs[1] {
			t.Errorf("seed %d: two runs, two results", w.Seed)
		}
		return runs[0]
	}
	for i := range uint64(25) {
		if w := Draw(i); w.cost() <= affordable {
			same(w, Ours)
		}
	}
	for _, how := range []string{"told", "cancel", "hidden"} {
		if told[how] == 0 {
			t.Errorf("nobody was refused where patience is %s: nothing shown", how)
		}
	}
	for _, g := range []Guard{wardens(), Pool("bound", 4, 64)} {
		if same(small(0.7), g) == same(like(small(0.7), func(w *World) { w.Seed++ }), g) {
			t.Errorf("%s: another seed changes nothing", g.Name)
		}
	}
}

// The oracle is no worse than what it is chosen from, or it would flatter each law.
func TestOracleIsTheBest(t *testing.T) {
	for i := range uint64(12) {
		w := Draw(i)
		if w.cost() > affordable {
			continue
		}
		tried, err := Compare(w, inBubble(t))
		must(t, err)
		best := w.counted(tried.Oracle)
		if tried.Open.Inside <= defaultQueue && best.Good < w.counted(tried.Open).Good {
			t.Errorf("seed %d: %+v, no limit %+v", i, best, w.counted(tried.Open))
		}
		for _, target := range w.candidates() {
			r := try(t, w, Static(target), false)
			if w.counted(r).Good > best.Good {
				t.Errorf("seed %d: target %d is better than the oracle's %d: %+v, %+v", i, target, tried.Best, w.counted(r), best)
			}
		}
	}
}

// Of what others take, as much is stolen as would have been used, and the share covers whole seconds.
func TestStolenProcessors(t *testing.T) {
	for name, c := range map[string]struct {
		cores, busy, ready int
		want               monitor.Reading
	}{
		"nothing is taken":          {4, 4, 9, monitor.Reading{Value: 1, OK: true}},
		"three of four, all wanted": {1, 1, 9, monitor.Reading{Value: 0.25, OK: true}},
		"three, of which one would": {1, 1, 1, monitor.Reading{Value: 0.5, OK: true}},
		"three, and nothing waits":  {1, 1, 0, monitor.Reading{Value: 1, OK: true}},
		"nothing is wanted":         {1, 0, 0, monitor.Reading{}},
	} {
		s := &server{allowed: 4, cores: c.cores, busy: c.busy}
		for range c.ready {
			s.ready.push(&attempt{})
		}
		var got monitor.Reading
		for i := range 10 {
			if got != (monitor.Reading{}) {
				t.Errorf("%s: %+v after %d tenths of a second", name, got, i)
			}
			s.account(time.Duration(i+1) * tick)
			got = s.share.add(s.spent, s.stolen, tick)
			s.spent, s.stolen = 0, 0
		}
		if got != c.want {
			t.Errorf("%s: the share is %+v, want %+v", name, got, c.want)
		}
	}
}

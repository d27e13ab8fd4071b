package main

// The generator does not wait for a slow shop, and each claim of the verdict can fail.

import (
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// send lets customers follow a plan at a server.
func send(t *testing.T, handler http.HandlerFunc, start time.Time, patience time.Duration, all []arrival) figures {
	t.Helper()
	srv := httptest.NewServer(handler)
	defer srv.Close()
	sc := scenario{patience: patience, phases: make([]phase, 3)}
	return sc.follow(t.Context(), srv.URL, start, all, func(phase) {})[0][checkout]
}

// A closed loop, which waits for a response before it sends the next request, would block here.
func TestTrafficIsOpenLoop(t *testing.T) {
	const n = 50
	var together sync.WaitGroup
	together.Add(n)
	got := send(t, func(http.ResponseWriter, *http.Request) { together.Done(); together.Wait() }, time.Now(), time.Minute,
		make([]arrival, n))
	if got.success() != 1 || got.sent != n {
		t.Errorf("%+v, want %d successes", got, n)
	}
}

func TestOutcomes(t *testing.T) {
	responds := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = w.Write([]byte(body)) }
	}
	for _, c := range []struct {
		handler http.HandlerFunc
		started time.Duration // how long ago the request was due
		want    outcome
	}{
		{responds(http.StatusOK, "{}"), 0, ""},
		{func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(cachedHeader, "true") }, 0, cached},
		{responds(http.StatusServiceUnavailable, `{"reason":"queue_overflow"}`), 0, "queue_overflow"},
		{responds(http.StatusServiceUnavailable, "busy"), 0, other},
		{responds(http.StatusAccepted, "{}"), 0, other},
		{responds(http.StatusOK, "{}"), time.Hour, late}, // the deadline counts from the intended start
	} {
		got := send(t, c.handler, time.Now().Add(-c.started), time.Minute, make([]arrival, 1))
		if got.sent != 1 || got.by[c.want] != 1 || got.took[0] < c.started {
			t.Errorf("%+v, want %q", got, c.want)
		}
	}
}

// The same seed gives the same plan; each phase has the arrivals of its rate.
func TestPlanOfArrivals(t *testing.T) {
	sc := incident()
	if !slices.Equal(sc.plan(1), sc.plan(1)) || slices.Equal(sc.plan(1), sc.plan(2)) {
		t.Error("a plan is not fixed by its seed")
	}
	counts := make([][routes]float64, len(sc.phases))
	for _, a := range sc.plan(1) {
		counts[a.phase][a.route]++
	}
	for p, of := range counts {
		for r, n := range of {
			if want := sc.phases[p].perSecond[r] * sc.phases[p].lasts.Seconds(); math.Abs(n-want) > 5*math.Sqrt(want) {
				t.Errorf("%s %s: %g arrivals, want %g", sc.phases[p].name, route(r), n, want)
			}
		}
	}
}

func of(by map[outcome]int) (f figures) {
	for o, n := range by {
		for range n {
			f.record(o, time.Millisecond)
		}
	}
	return f
}

// limits returns results at the limit of each claim, for which the verdict holds.
func limits() (all [4]result) {
	for i := range all {
		all[i] = make(result, 4)
		for p := range all[i] {
			for r := range routes {
				all[i][p][r] = of(map[outcome]int{"": 990, late: 10})
			}
		}
	}
	all[0][1][checkout] = of(map[outcome]int{"": 499, "pool_timeout": 251, late: 250})
	all[1][1][analytics] = of(map[outcome]int{"": 500, "queue_overflow": 25, "timeout_queued": 25, "breaker_open": 450})
	all[1][2][products] = of(map[outcome]int{"": 890, cached: 100, late: 10})
	all[2][1][checkout] = of(map[outcome]int{"": 499, late: 251, other: 250})
	all[3][1][products] = of(map[outcome]int{"": 1, "pressure_high": 999})
	all[3][1][analytics] = of(map[outcome]int{"max_wait_exceeded": 81, late: 319})
	return all
}

func TestVerdict(t *testing.T) {
	all := limits()
	if v := judge(all[0], all[1], all[2], all[3]); v.fails != 0 || strings.Count(v.text.String(), "ok  ") != 12 {
		t.Errorf("%d fail:\n%s", v.fails, &v.text)
	}
	for _, c := range []struct {
		act, phase int
		route      route
		instead    map[outcome]int
		fails      string
	}{
		{0, 0, checkout, map[outcome]int{"": 989, "pool_timeout": 11}, "one pool, healthy"},
		{0, 0, admin, nil, "one pool, healthy"},
		{0, 1, checkout, map[outcome]int{"": 500, "pool_timeout": 500}, "one pool, slow report"},
		{0, 1, checkout, map[outcome]int{"": 499, "pool_timeout": 250, late: 251}, "one pool, slow report"},
		{0, 1, checkout, nil, "one pool, slow report"},
		{1, 0, products, map[outcome]int{"": 989, other: 11}, "compartments, healthy"},
		{1, 1, checkout, map[outcome]int{"": 989, "queue_overflow": 11}, "compartments, slow report: at least 0.99"},
		{1, 1, analytics, map[outcome]int{"": 501, "queue_overflow": 50, "breaker_open": 449},
			"compartments, slow report: at least 0.50"},
		{1, 1, analytics, map[outcome]int{"queue_overflow": 50, "breaker_open": 460}, "compartments, slow report: at least 0.50"},
		{1, 1, analytics, nil, "compartments, slow report: at least 0.50"},
		{1, 2, products, map[outcome]int{"": 889, cached: 100, late: 11}, "compartments, slow products too: at least"},
		{1, 2, products, map[outcome]int{"": 891, cached: 99, late: 10}, "compartments, slow products too: products"},
		{2, 1, checkout, map[outcome]int{"": 500, late: 500}, "sale, compartments alone"},
		{3, 0, checkout, map[outcome]int{"": 98, late: 2}, "sale with a warden, healthy"},
		{3, 1, checkout, map[outcome]int{"": 989, late: 11}, "sale with a warden, rush: at least"},
		{3, 1, products, map[outcome]int{"": 1000}, "sale with a warden, rush: some"},
		{3, 1, products, map[outcome]int{"pressure_high": 1000}, "sale with a warden, rush: some"},
		{3, 1, analytics, map[outcome]int{"max_wait_exceeded": 79, late: 320, other: 1}, "sale with a warden, rush: at most 0.10"},
	} {
		all := limits()
		all[c.act][c.phase][c.route] = of(c.instead)
		if v := judge(all[0], all[1], all[2], all[3]); v.fails != 1 || !strings.Contains(v.text.String(), "FAIL "+c.fails) {
			t.Errorf("%+v: %d fail, want one:\n%s", c, v.fails, &v.text)
		}
	}
}

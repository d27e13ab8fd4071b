package main

// The load generator: a plan fixed by its seed, an open loop, deadlines that count from the intended start.

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// duration is the length of all phases.
func (sc scenario) duration() time.Duration {
	var sum time.Duration
	for _, p := range sc.phases {
		sum += p.lasts
	}
	return sum
}

func TestPlanIsFixedByItsSeed(t *testing.T) {
	sc := incident()
	if !slices.Equal(plan(sc, 1), plan(sc, 1)) {
		t.Error("one seed, two plans")
	}
	if slices.Equal(plan(sc, 1), plan(sc, 2)) {
		t.Error("two seeds, one plan")
	}
}

func TestPlanIsPoisson(t *testing.T) {
	sc := incident()
	for p := range sc.phases {
		sc.phases[p].lasts *= 20
		sc.phases[p].perSecond = sc.phases[0].perSecond
	}
	all := plan(sc, 1)
	if !slices.IsSortedFunc(all, func(a, b arrival) int { return int(a.at - b.at) }) {
		t.Error("not in the order of time")
	}
	var count [routes + 1]float64
	var last [routes + 1]time.Duration
	var gaps, squares [routes + 1]float64
	for _, a := range all {
		if a.at < 0 || a.at >= sc.duration() || a.phase != sc.at(a.at) || a.product < 1 || a.product > 100 {
			t.Fatalf("arrival %+v", a)
		}
		gap := (a.at - last[a.route]).Seconds()
		last[a.route] = a.at
		count[a.route]++
		gaps[a.route] += gap
		squares[a.route] += gap * gap
	}
	for r := range routes {
		want := sc.phases[0].perSecond[r] * sc.duration().Seconds()
		if math.Abs(count[r]-want) > 5*math.Sqrt(want) {
			t.Errorf("%s: %.0f arrivals, want %.0f", r, count[r], want)
		}
		// The variance of exponential gaps is the square of their mean; that of equal gaps is 0.
		mean := gaps[r] / count[r]
		if ratio := (squares[r]/count[r] - mean*mean) / (mean * mean); ratio < 0.8 || ratio > 1.2 {
			t.Errorf("%s: variance of the gaps %.2f of their squared mean, want 1", r, ratio)
		}
	}
}

func TestPhasesFollowEachOther(t *testing.T) {
	sc := incident()
	begin := time.Duration(0)
	for i, p := range sc.phases {
		for _, after := range []time.Duration{0, p.lasts / 2, p.lasts - 1} {
			if got := sc.at(begin + after); got != i {
				t.Errorf("%v into %s it is phase %d, want %d", after, p.name, got, i)
			}
		}
		begin += p.lasts
	}
	if got := sc.at(begin + time.Hour); got != len(sc.phases)-1 || begin != sc.duration() {
		t.Errorf("an hour after %v it is phase %d", begin, got)
	}
}

// Each phase has its own rates and all of its arrivals.
func TestRatesArePhases(t *testing.T) {
	sc := incident()
	sc.pings = 0
	sc.phases = []phase{
		{name: "a", lasts: time.Second, perSecond: [routes]float64{admin: 100}},
		{name: "b", lasts: time.Second},
		{name: "c", lasts: time.Second, perSecond: [routes]float64{checkout: 100}},
	}
	seen := map[int]route{}
	for _, a := range plan(sc, 3) {
		seen[a.phase] = a.route
		if a.phase == 1 || (a.phase == 0) != (a.route == admin) {
			t.Fatalf("%+v", a)
		}
	}
	if len(seen) != 2 {
		t.Errorf("phases with arrivals: %v", seen)
	}
}

// sending follows a plan against handler and returns the outcomes.
func sending(ctx context.Context, t *testing.T, handler http.HandlerFunc, start time.Time, patience time.Duration, all []arrival) (
	got figures, entered []int) {
	t.Helper()
	srv := httptest.NewServer(handler)
	defer srv.Close()
	client := newClient()
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	c := customers{srv.URL, client, patience, func(_ arrival, how outcome, _ time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		got = got.and(how)
	}}
	c.follow(ctx, start, all, func(p int) { entered = append(entered, p) })
	return got, entered
}

// A closed loop, which waits for a response before it sends the next request, would block here.
func TestTrafficIsOpenLoop(t *testing.T) {
	const n = 50
	var together sync.WaitGroup
	together.Add(n)
	handler := func(http.ResponseWriter, *http.Request) { together.Done(); together.Wait() }
	all := make([]arrival, n)
	for i := range all {
		all[i] = arrival{phase: i * 3 / n, route: route(i % int(routes))}
	}
	got, entered := sending(t.Context(), t, handler, time.Now(), time.Minute, all)
	if got.succeeded != n {
		t.Errorf("outcomes %+v, want %d successes", got, n)
	}
	if !slices.Equal(entered, []int{0, 1, 2}) {
		t.Errorf("entered %v", entered)
	}
}

func TestTheDeadlineCountsFromTheIntendedStart(t *testing.T) {
	handler := func(http.ResponseWriter, *http.Request) {}
	anHourAgo := time.Now().Add(-time.Hour)
	if got, _ := sending(t.Context(), t, handler, anHourAgo, time.Minute, make([]arrival, 3)); got.reasons() != "late 3" {
		t.Errorf("outcomes %+v, want 3 too late", got)
	}
}

func TestOutcomes(t *testing.T) {
	responds := func(status int, body, cached string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if cached != "" {
				w.Header().Set(cachedHeader, cached)
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	for _, c := range []struct {
		handler   http.HandlerFunc
		patience  time.Duration
		succeeded int
		reasons   string
	}{
		{responds(http.StatusOK, "{}", ""), time.Minute, 1, ""},
		{responds(http.StatusOK, "{}", "timeout_queued"), time.Minute, 1, "cached: timeout_queued 1"},
		{responds(http.StatusServiceUnavailable, `{"reason":"queue_overflow"}`, ""), time.Minute, 0, "queue_overflow 1"},
		{responds(http.StatusServiceUnavailable, "busy", ""), time.Minute, 0, "other 1"},
		{responds(http.StatusAccepted, "{}", ""), time.Minute, 0, "other 1"},
		{func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 50 * time.Millisecond, 0, "late 1"},
	} {
		got, _ := sending(t.Context(), t, c.handler, time.Now(), c.patience, make([]arrival, 1))
		if got.succeeded != c.succeeded || got.reasons() != c.reasons {
			t.Errorf("%d succeeded, %q; want %d, %q", got.succeeded, got.reasons(), c.succeeded, c.reasons)
		}
	}
}

func TestTrafficStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	handler := func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() }
	if got, _ := sending(ctx, t, handler, time.Now(), time.Minute, []arrival{{}, {at: time.Hour}}); got.sent != 0 {
		t.Errorf("outcomes %+v, want none", got)
	}
}

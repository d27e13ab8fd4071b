package main

// The customers: planned by a seed, open loop, with deadlines that count from the intended start.

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
	for p := range phases {
		sc.lasts[p] *= 20
	}
	all := plan(sc, 1)
	if !slices.IsSortedFunc(all, func(a, b arrival) int { return int(a.at - b.at) }) {
		t.Error("not in the order of time")
	}
	var count [routes]float64
	var last [routes]time.Duration
	var gaps, squares [routes]float64
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
		want := sc.perSecond[r] * sc.duration().Seconds()
		if math.Abs(count[r]-want) > 5*math.Sqrt(want) {
			t.Errorf("%s: %.0f arrivals, want %.0f", r, count[r], want)
		}
		// The variance of exponential gaps is the square of their mean; of even gaps it would be 0.
		mean := gaps[r] / count[r]
		if ratio := (squares[r]/count[r] - mean*mean) / (mean * mean); ratio < 0.8 || ratio > 1.2 {
			t.Errorf("%s: variance of the gaps %.2f of their squared mean, want 1", r, ratio)
		}
	}
}

func TestPhasesFollowEachOther(t *testing.T) {
	sc := incident() // 3 s, 5 s, 4 s
	for second, want := range []phase{healthy, healthy, healthy, slow, slow, slow, slow, slow, rollback, rollback, rollback, rollback, rollback} {
		if got := sc.at(time.Duration(second) * time.Second); got != want {
			t.Errorf("after %d s: %s, want %s", second, got, want)
		}
	}
}

// sending follows a plan against handler and returns the outcomes.
func sending(ctx context.Context, t *testing.T, handler http.HandlerFunc, start time.Time, patience time.Duration, all []arrival) (
	count [outcomes]int, entered []phase) {
	t.Helper()
	srv := httptest.NewServer(handler)
	defer srv.Close()
	client := newClient()
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	c := customers{srv.URL, client, patience, func(_ arrival, how outcome, _ time.Duration, _ error) {
		mu.Lock()
		defer mu.Unlock()
		count[how]++
	}}
	c.follow(ctx, start, all, func(p phase) { entered = append(entered, p) })
	return count, entered
}

// A closed loop would wait for an answer before it sends the next request, and this test for ever.
func TestTrafficIsOpenLoop(t *testing.T) {
	const n = 50
	var together sync.WaitGroup
	together.Add(n)
	handler := func(http.ResponseWriter, *http.Request) { together.Done(); together.Wait() }
	all := make([]arrival, n)
	for i := range all {
		all[i] = arrival{phase: phase(i * int(phases) / n), route: route(i % int(routes))}
	}
	count, entered := sending(t.Context(), t, handler, time.Now(), time.Minute, all)
	if count[succeeded] != n {
		t.Errorf("outcomes %v, want %d successes", count, n)
	}
	if !slices.Equal(entered, []phase{healthy, slow, rollback}) {
		t.Errorf("entered %v", entered)
	}
}

func TestTheDeadlineCountsFromTheIntendedStart(t *testing.T) {
	handler := func(http.ResponseWriter, *http.Request) {}
	anHourAgo := time.Now().Add(-time.Hour)
	count, _ := sending(t.Context(), t, handler, anHourAgo, time.Minute, make([]arrival, 3))
	if want := [outcomes]int{clientTimeout: 3}; count != want {
		t.Errorf("outcomes %v, want %v", count, want)
	}
}

func TestOutcomes(t *testing.T) {
	answer := func(status int, retry string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if retry != "" {
				w.Header().Set("Retry-After", retry)
			}
			w.WriteHeader(status)
		}
	}
	for _, c := range []struct {
		handler  http.HandlerFunc
		patience time.Duration
		want     outcome
	}{
		{answer(http.StatusOK, ""), time.Minute, succeeded},
		{answer(http.StatusServiceUnavailable, "1"), time.Minute, gateRejected},
		{answer(http.StatusServiceUnavailable, ""), time.Minute, otherFailure},
		{answer(http.StatusGatewayTimeout, ""), time.Minute, poolTimeout},
		{answer(http.StatusNoContent, ""), time.Minute, otherFailure},
		{func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 50 * time.Millisecond, clientTimeout},
	} {
		count, _ := sending(t.Context(), t, c.handler, time.Now(), c.patience, make([]arrival, 1))
		if count[c.want] != 1 {
			t.Errorf("outcomes %v, want one of %d", count, c.want)
		}
	}
}

func TestTrafficStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	handler := func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() }
	count, _ := sending(ctx, t, handler, time.Now(), time.Minute, []arrival{{}, {at: time.Hour}})
	if count != [outcomes]int{} {
		t.Errorf("outcomes %v, want none", count)
	}
}

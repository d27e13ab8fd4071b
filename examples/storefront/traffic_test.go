package main

import (
	"context"
	"errors"
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

// sending follows a plan against handler and returns the outcomes.
func sending(t *testing.T, ctx context.Context, handler http.HandlerFunc, start time.Time, patience time.Duration, all []arrival) (
	count [outcomes]int, entered []phase, err error) {
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
	err = c.follow(ctx, start, all, func(p phase) { entered = append(entered, p) })
	return count, entered, err
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
	count, entered, err := sending(t, t.Context(), handler, time.Now(), time.Minute, all)
	if err != nil || count[succeeded] != n {
		t.Errorf("outcomes %v, error %v", count, err)
	}
	if !slices.Equal(entered, []phase{healthy, slow, rollback}) {
		t.Errorf("entered %v", entered)
	}
}

func TestTheDeadlineCountsFromTheIntendedStart(t *testing.T) {
	handler := func(http.ResponseWriter, *http.Request) {}
	anHourAgo := time.Now().Add(-time.Hour)
	count, _, err := sending(t, t.Context(), handler, anHourAgo, time.Minute, make([]arrival, 3))
	if want := [outcomes]int{clientTimeout: 3}; err != nil || count != want {
		t.Errorf("outcomes %v, want %v; error %v", count, want, err)
	}
}

func TestOutcomes(t *testing.T) {
	for want, handler := range map[outcome]http.HandlerFunc{
		succeeded:     func(http.ResponseWriter, *http.Request) {},
		poolTimeout:   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(504) },
		gateRejected:  func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "1"); w.WriteHeader(503) },
		otherFailure:  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		clientTimeout: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		patience := time.Minute
		if want == clientTimeout {
			patience = 50 * time.Millisecond
		}
		count, _, err := sending(t, t.Context(), handler, time.Now(), patience, make([]arrival, 1))
		if err != nil || count[want] != 1 {
			t.Errorf("outcomes %v, want one of %d; error %v", count, want, err)
		}
	}
}

func TestTrafficStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	handler := func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() }
	count, _, err := sending(t, ctx, handler, time.Now(), time.Minute, []arrival{{}, {at: time.Hour}})
	if !errors.Is(err, context.Canceled) || count != [outcomes]int{} {
		t.Errorf("outcomes %v, error %v, want none and context.Canceled", count, err)
	}
}

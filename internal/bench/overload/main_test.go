// SPDX-License-Identifier: Apache-2.0

//go:build linux

// What the command line may say.

package main

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/monitor"
)

func groupsOf(t *testing.T, s selection) []group {
	t.Helper()
	groups, err := s.groups()
	if err != nil {
		t.Fatal(err)
	}
	return groups
}

// Flags choose what they name, and nothing else.
func TestSelection(t *testing.T) {
	got := groupsOf(t, selection{workloads: "cpu4,wait2s", loads: "2,4", variants: "warden,failsafe", knows: "told,h2"})
	if len(got) != 4 {
		t.Fatalf("%d groups, want each workload with each kind of clients", len(got))
	}
	for _, g := range got {
		if !slices.Equal(g.loads, []float64{2, 4}) || len(g.variants) != 2 || g.variants[0].name != "warden" {
			t.Errorf("%+v", g)
		}
	}
	for _, s := range []selection{{workloads: "cpu5"}, {variants: "best"}, {loads: "0"}, {loads: "2,x"}, {knows: "all"}} {
		if _, err := s.groups(); err == nil {
			t.Errorf("%+v: no error", s)
		}
	}
}

// A full run measures every workload untold, and each one told and with bodies but those where calls take long.
func TestFullRun(t *testing.T) {
	seen := map[string]string{}
	for _, g := range groupsOf(t, selection{}) {
		seen[g.workload.name] += " " + g.knows
		for _, v := range g.variants {
			asked := g.asks(v)
			if v.slow && asked != (g.knows == untold && g.workload.computes()) || v.right && asked != (g.workload.right > 0) ||
				v.pool && asked != slices.Contains([]string{"app", "downstream"}, g.workload.name) {
				t.Errorf("%s in %s, %s: %v", v.name, g.workload.name, g.knows, asked)
			}
		}
	}
	for _, w := range workloads() {
		want := " untold told post"
		if w.name == "cpu4" {
			want += " h2"
		}
		if w.unbound() {
			want = " untold"
		}
		if seen[w.name] != want {
			t.Errorf("%s: %q, want %q", w.name, seen[w.name], want)
		}
	}
}

// The table of noes has ours alone, at twice and four times the capacity, before clients of whatever patience.
func TestNoes(t *testing.T) {
	seen := map[string]time.Duration{}
	all := groupsOf(t, selection{noes: true})
	for _, g := range all {
		seen[g.knows] = g.workload.patience
		if len(g.variants) != 1 || g.variants[0].name != "warden" || !slices.Equal(g.loads, []float64{2, 4}) || g.workload.unbound() {
			t.Errorf("%+v", g)
		}
	}
	if want := map[string]time.Duration{stay: 2 * time.Second, long: 30 * time.Second,
		jobs: time.Minute}; len(all) != 6*len(want) || !maps.Equal(seen, want) {
		t.Errorf("%d groups, %v", len(all), seen)
	}
}

// Variants alternate, and after the first round a peer runs on only where it can still be the best.
func TestTurn(t *testing.T) {
	g := groupsOf(t, selection{workloads: "downstream", loads: "2", variants: "warden,none,failsafe,failsafe-prio,gradient2,aegis",
		knows: untold})[0]
	names := func(round int, runs map[string][]Cell) (all string) {
		for _, v := range g.turn(round, runs) {
			all += " " + v.name
		}
		return all
	}
	runs := func(ours, none, failsafe, prio, gradient float64) map[string][]Cell {
		return map[string][]Cell{
			"warden": {{Goodput: ours}}, "none": {{Goodput: none}}, "failsafe": {{Goodput: failsafe}, {Goodput: 0}},
			"failsafe-prio": {{Goodput: prio}}, "gradient2": {{Goodput: gradient}},
		}
	}
	for _, c := range []struct {
		round int
		runs  map[string][]Cell
		want  string
	}{
		{0, nil, " warden none failsafe failsafe-prio gradient2"}, // aegis sees no busy processor
		{1, runs(0, 0, 0.9, 0.79, 0.81), " gradient2 failsafe none warden"},
		{2, runs(0, 0, 0.9, 0.79, 0.81), " warden none failsafe gradient2"},
		{2, runs(1, 1, 0.09, 0.1, 0), " warden none failsafe-prio"},
		{2, runs(1, 1, 0, 0, 0), " warden none"},
	} {
		if got := names(c.round, c.runs); got != c.want {
			t.Errorf("round %d:%s, want%s", c.round, got, c.want)
		}
	}
	g.all = true
	if got := names(2, runs(1, 0, 0, 0, 0)); got != " warden none failsafe failsafe-prio gradient2" {
		t.Errorf("all rounds of all:%s", got)
	}
}

// A rate at which nothing is refused for want of room keeps fewer calls under way than a warden lets wait.
func TestUnboundWorkloadsStayBelowTheQueue(t *testing.T) {
	for _, w := range workloads() {
		if w.unbound() && slices.Max(w.loads)*atOnce > 1024/2 {
			t.Errorf("%s: loads %v", w.name, w.loads)
		}
	}
}

// The server tells the work when the client leaves if it is to be told, and counts its executions.
func TestHandlerTellsAndCounts(t *testing.T) {
	for _, knows := range allKnows() {
		w := mustWork(t, "downstream")
		w.wait = 0
		k, err := newWorker(w, 0)
		if err != nil {
			t.Fatal(err)
		}
		var count atomic.Int64
		var deadline bool
		spy := variant{mount: func(work http.Handler, _ *worker) (http.Handler, error) {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				_, deadline = r.Context().Deadline()
				work.ServeHTTP(rw, r)
			}), nil
		}}
		h, err := newHandler(spy, k, serveArgs{Knows: knows}, &count)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			r := httptest.NewRequest(http.MethodPost, "/critical/heavy", strings.NewReader("body"))
			rec := httptest.NewRecorder()
			if h.ServeHTTP(rec, r); rec.Code != 200 || rec.Body.String() != "done" {
				t.Fatalf("%d %q", rec.Code, rec.Body)
			}
		}
		k.free = make(chan struct{}) // no connection
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
		if deadline != (knows == told) || rec.Code != http.StatusGatewayTimeout || count.Load() != 2 {
			t.Errorf("%s: deadline %v, %d for a client that has left, %d executions", knows, deadline, rec.Code, count.Load())
		}
	}
}

// The application answers with a page of a customer's orders, and with nothing after its client has left.
func TestApplication(t *testing.T) {
	a, err := newApplication()
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	page, err := a.do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(page), "<tr "); n != perCustomer || !strings.Contains(string(page), "City &lt;") ||
		strings.Contains(string(page), "City <") {
		t.Errorf("%d orders in %.300s", n, page)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if page, err := a.do(ctx); !errors.Is(err, context.Canceled) || page != nil {
		t.Errorf("%d bytes, %v", len(page), err)
	}
}

// A pool tells what the work holds of it.
func TestPool(t *testing.T) {
	k, err := newWorker(mustWork(t, "downstream"), 0)
	if err != nil {
		t.Fatal(err)
	}
	k.free <- struct{}{}
	if got, want := k.pool().Stats(), (monitor.PoolStats{InUse: 1, Max: 10}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	app, err := newWorker(mustWork(t, "app"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer app.close()
	c, err := app.app.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if got, want := app.pool().Stats(), (monitor.PoolStats{InUse: 1, Max: 16}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// The generator has a core of its own if there is one.
func TestPlace(t *testing.T) {
	for _, c := range []struct {
		cores     []int
		n         int
		generator int
	}{{[]int{3, 5}, 1, 5}, {[]int{3, 5}, 2, 5}, {[]int{3, 5, 7}, 2, 7}, {[]int{3}, 1, 3}} {
		p, err := place(c.cores, c.n)
		if err != nil || !slices.Equal(p.server, c.cores[:c.n]) || p.generator != c.generator {
			t.Errorf("%+v: %+v, %v", c, p, err)
		}
	}
	if _, err := place([]int{3}, 2); err == nil {
		t.Error("two processors on one core")
	}
}

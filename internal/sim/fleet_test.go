// SPDX-License-Identifier: Apache-2.0

// The fleets: small ones with their limits for every day, and all of them for the page.

package sim

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// small is a fleet of two servers under a step, for a short time.
func small(load float64) *World {
	w := step(cpuFleet(2, load), 2)
	w.Name = "small"
	return w
}

// every compares unexported fields too.
var every = cmp.Exporter(func(reflect.Type) bool { return true })

// like changes a fleet.
func like(w *World, change func(w *World)) *World {
	change(w)
	return w
}

// Users who try again at once hold a fleet down that nothing guards: with the same users and no trigger it is up, with the
// trigger and no retries it comes back, and with both it does not.
func TestFleetIsMetastable(t *testing.T) {
	down := try(t, small(0.7), Open, true)
	if !down.Metastable() || down.after().Share() > 0.1 || down.after().amplification() < 2.5 {
		t.Errorf("step and retries: %s", FleetTable(down))
	}
	if up := try(t, cpuFleet(2, 0.7), Open, true); up.before().Share() < 0.999 || up.after().Share() < 0.999 {
		t.Errorf("no step: %s", FleetTable(up))
	}
	patient := like(small(0.5), func(w *World) { w.Retry = once() })
	if back := try(t, patient, Open, true); back.Metastable() || back.amid().Share() > 0.9 {
		t.Errorf("no retries: %s", FleetTable(back))
	}
}

func TestFleetComesBackUnderWarden(t *testing.T) {
	for _, retry := range []Retry{immediate(), backoff()} {
		r := try(t, like(small(0.7), func(w *World) { w.Retry = retry }), wardens(), true)
		if d, ok := r.Recovery(); !ok || d > 2 || r.before().Share() < 0.999 || r.after().Share() < 0.999 || r.amid().Share() < 0.45 ||
			r.amid().CriticalShare() < 0.95 {
			t.Errorf("%s", FleetTable(r))
		}
	}
}

// A dependency that all servers share: the same, but nobody's processors are busy.
func TestFleetComesBackFromASlowDependency(t *testing.T) {
	w := slow(ioFleet(2, 0.7))
	if down := try(t, w, Open, true); !down.Metastable() {
		t.Errorf("nothing: %s", FleetTable(down))
	}
	r := try(t, w, wardens(), true)
	if d, ok := r.Recovery(); !ok || d > 5 {
		t.Errorf("warden: %s", FleetTable(r))
	}
}

// Our client alone, before servers that nothing guards: back within 5 s, 1.1 attempts for each request that is sent.
func TestFleetComesBackByItsClientsAlone(t *testing.T) {
	for _, callers := range []int{1, 4} {
		calling := func(w *World) { w.Retry = Retry{Callers: callers} }
		r := try(t, like(small(0.7), calling), Open, true)
		if d, ok := r.Recovery(); !ok || d > 5 || r.before().Share() < 0.999 || r.after().Share() < 0.999 {
			t.Errorf("%d callers: %s", callers, FleetTable(r))
		}
		refused := try(t, like(down(cpuFleet(2, 0.7)), calling), Open, true)
		s := refused.refused()
		// An attempt counts when it is made, a request when it comes.
		if sent := s.Offered - s.throttled; s.throttled == 0 || s.attempts <= sent || float64(s.attempts) > 1.1*float64(sent)+5 {
			t.Errorf("%d callers: %+v", callers, s)
		}
		if d, ok := refused.Recovery(); !ok || d > 5 {
			t.Errorf("%d callers: %s", callers, FleetTable(refused))
		}
	}
}

// Deadlines and criticality that travel through three hops, and what is lost without.
func TestFleetOfThreeHops(t *testing.T) {
	with, without := try(t, hops(0.25, true), wardens(), true), try(t, hops(0.25, false), wardens(), true)
	all := func(r *Result) *stretch { return r.during(warm, r.World.Length) }
	if with.Wasted(2) > 0.01 || all(with).CriticalShare() < 0.99 || all(with).Share() < 0.48 {
		t.Error(HopTable(with))
	}
	if without.Wasted(2) < 2*with.Wasted(2) || all(without).CriticalShare() > 0.8 {
		t.Error(HopTable(without))
	}
}

// TestFleet is `make sim SIM=fleet`.
func TestFleet(t *testing.T) {
	if *write == "" {
		t.Skip("runs in `make sim SIM=fleet`; the other tests are the slice of it for every day")
	}
	run := func(w *World, g Guard) *Result {
		began := time.Now()
		r := try(t, w, g, true)
		fmt.Println(w.Retry.Name, strings.Split(FleetTable(r), "\n")[2], time.Since(began).Round(ms))
		return r
	}
	var all, chains []*Result
	var byGuard, byClient [][]*Result
	row := func(w *World, guards ...Guard) (row []*Result) {
		for _, g := range guards {
			row = append(row, run(w, g))
		}
		all = append(all, row...)
		return row
	}
	for _, w := range append(Fleets(), step(cpuFleet(5, 0.25), 2), step(cpuFleet(5, 0.4), 2), step(cpuFleet(5, 0.95), 2)) {
		byGuard = append(byGuard, row(w, under(w)...))
	}
	for _, client := range clients() {
		calling := func(w *World) { w.Retry = client }
		back := row(like(step(cpuFleet(size, 0.7), 2), calling), Open, wardens())
		back = append(back, row(like(slow(ioFleet(size, 0.7)), calling), Open)...)
		byClient = append(byClient, append(back, row(like(down(cpuFleet(size, 0.7)), calling), Open)...))
	}
	for _, patience := range []float64{0.25, 0.1} {
		chains = append(chains, run(hops(patience, false), wardens()), run(hops(patience, true), wardens()))
	}
	rewrite(t, "fleet", GuardTable(byGuard)+"\n"+ClientTable(byClient), FleetTable(all...)+"\n"+HopTable(chains...))
}

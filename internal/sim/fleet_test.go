// SPDX-License-Identifier: Apache-2.0

// The fleets: small ones with their limits for every day, and all of them for the page.

package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
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

// Nothing is lost and nothing is done twice, whatever guards the servers: Result.check, and in the end they are empty.
func TestFleetAddsUp(t *testing.T) {
	w := like(small(0.7), func(w *World) { w.Length, w.Drain, w.Retry = 8, true, backoff() })
	for _, g := range under(w) {
		r := try(t, w, g, true)
		if r.Stranded != 0 || r.All.Offered < 500 || r.Attempts <= r.All.Offered || r.Unheard > r.Timeouts {
			t.Errorf("%s: %d requests, %d attempts, %d timeouts, %d answers that nobody heard, %d left inside",
				g.Name, r.All.Offered, r.Attempts, r.Timeouts, r.Unheard, r.Stranded)
		}
	}
}

func TestFleetReplays(t *testing.T) {
	for _, guard := range []Guard{wardens(), Pool("bound", 4, 64)} {
		w := like(small(0.7), func(w *World) { w.Length = 8 })
		numbers := func() Result {
			r := *try(t, w, guard, true)
			r.World, r.users, r.points = nil, nil, nil
			return r
		}
		first := numbers()
		if diff := cmp.Diff(first, numbers(), every); diff != "" {
			t.Errorf("%s: the same seed, and (-first +again)\n%s", guard.Name, diff)
		}
		w.Seed++
		if cmp.Equal(first, numbers(), every) {
			t.Errorf("%s: another seed changes nothing", guard.Name)
		}
	}
}

// Where users ask for more than the fleet can do, it does what its capacity says.
func TestFleetCapacityIsWhatTheModelCanDo(t *testing.T) {
	for _, w := range []*World{cpuFleet(2, 2), ioFleet(2, 2)} {
		w.Retry, w.Length = once(), 10
		near(t, w.Kinds[0].String(), float64(try(t, w, under(w)[3], true).Executed)/w.Length, w.capacity(0), 0.05)
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

// fleetPlots are the fleets that docs/evidence/fleet.md shows.
var fleetPlots = map[string]string{
	"load 0.7, 2 for 3 s":                         "step",
	"load 0.7, dependency 5 times slower for 3 s": "dependency",
}

// TestFleet is `make fleet`.
func TestFleet(t *testing.T) {
	if *write == "" && *only == "" {
		t.Skip("runs in `make fleet`; the other tests are the slice of it for every day")
	}
	run := func(w *World, g Guard) *Result {
		began := time.Now()
		r := try(t, w, g, true)
		fmt.Println(w.Retry.Name, strings.Split(FleetTable(r), "\n")[2], time.Since(began).Round(ms))
		return r
	}
	var all []*Result
	for _, w := range Fleets() {
		if !regexp.MustCompile(*only).MatchString(w.Name) {
			continue
		}
		var runs []*Result
		for _, g := range under(w) {
			runs = append(runs, run(w, g))
		}
		all = append(all, runs...)
		if name, ok := fleetPlots[w.Name]; ok && *write != "" {
			must(t, os.WriteFile(filepath.Join(*write, "fleet-"+name+".svg"), []byte(FleetSVG(runs)), 0o644))
		}
	}
	if *only != "" {
		return
	}
	var rows, byClient [][]*Result
	for _, load := range []float64{0.25, 0.4, 0.7, 0.95} {
		w := step(cpuFleet(5, load), 2)
		var row []*Result
		for _, g := range under(w) {
			row = append(row, run(w, g))
		}
		rows = append(rows, row)
	}
	for _, client := range clients() {
		var row []*Result
		calling := func(w *World) { w.Retry = client }
		for _, w := range []*World{like(step(cpuFleet(size, 0.7), 2), calling), like(slow(ioFleet(size, 0.7)), calling)} {
			row = append(row, run(w, Open), run(w, wardens()))
		}
		byClient = append(byClient, append(row, run(like(down(cpuFleet(size, 0.7)), calling), Open)))
	}
	var chains []*Result
	for _, patience := range []float64{0.25, 0.1} {
		chains = append(chains, run(hops(patience, false), wardens()), run(hops(patience, true), wardens()))
	}
	rewrite(t, "fleet.md", "Twenty servers, users who make 3 attempts at once.\n\n"+FleetTable(all...)+
		"\nFive servers, the same users, a step to 2 for 3 s at different loads: back after, and answered in the end.\n\n"+
		LoadTable(rows)+
		"\nTwenty servers, by client: back after (attempts per request while the trigger is there); and the attempts of the last 10 s in which all is refused.\n\n"+ClientTable(byClient)+
		"\nThree hops of four servers under wardens, of which the last can do half of what is asked for; no retries.\n\n"+
		HopTable(chains...))
}

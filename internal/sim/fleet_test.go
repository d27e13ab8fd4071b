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
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func runFleet(t *testing.T, sc Fleet) (r *FleetResult) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if r, err = RunFleet(sc); err != nil {
			t.Fatal(err)
		}
	})
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	return r
}

// small is a fleet of two servers under a step, for a short time.
func small(load float64, guard Guard) Fleet {
	sc := computing(2, load)
	sc.Name, sc.Guard, sc.Peak = "small", guard, 2
	return sc
}

// Users who try again at once hold a fleet down that nothing guards: with the same users and no trigger it is up, with the
// trigger and no retries it comes back, and with both it does not.
func TestFleetIsMetastable(t *testing.T) {
	down := runFleet(t, small(0.7, Guard{}))
	if !down.Metastable() || down.after().success() > 0.1 || down.after().amplification() < 2.5 {
		t.Errorf("step and retries: %s", FleetTable([]*FleetResult{down}))
	}
	calm := small(0.7, Guard{})
	calm.Peak = 0
	if up := runFleet(t, calm); up.before().success() < 0.999 || up.after().success() < 0.999 {
		t.Errorf("no step: %s", FleetTable([]*FleetResult{up}))
	}
	patient := small(0.5, Guard{})
	patient.Retry = once()
	if back := runFleet(t, patient); back.Metastable() || back.during().success() > 0.9 {
		t.Errorf("no retries: %s", FleetTable([]*FleetResult{back}))
	}
}

func TestFleetComesBackUnderWarden(t *testing.T) {
	for _, retry := range []Retry{immediate(), backoff()} {
		sc := small(0.7, Guard{Name: "warden", Warden: true})
		sc.Retry = retry
		r := runFleet(t, sc)
		if d, ok := r.Recovery(); !ok || d > 2*time.Second || r.before().success() < 0.999 || r.after().success() < 0.999 || r.during().success() < 0.45 || r.during().criticalSuccess() < 0.95 {
			t.Errorf("%s", FleetTable([]*FleetResult{r}))
		}
	}
}

// A dependency that all servers share: the same, but nobody's processors are busy.
func TestFleetComesBackFromASlowDependency(t *testing.T) {
	sc := waiting(2, 0.7)
	sc.Slow = 5
	if down := runFleet(t, sc); !down.Metastable() {
		t.Errorf("nothing: %s", FleetTable([]*FleetResult{down}))
	}
	sc.Guard = Guard{Name: "warden", Warden: true}
	r := runFleet(t, sc)
	if d, ok := r.Recovery(); !ok || d > 5*time.Second {
		t.Errorf("warden: %s", FleetTable([]*FleetResult{r}))
	}
}

// Nothing is lost and nothing is done twice, whatever guards the servers: FleetResult.Check, and in the end they are empty.
func TestFleetAddsUp(t *testing.T) {
	for _, sc := range under(small(0.7, Guard{})) {
		sc.Length, sc.Drain, sc.Retry = 8*time.Second, true, backoff()
		r := runFleet(t, sc)
		if r.inside != 0 || r.offered < 500 || r.attempts <= r.offered || r.unheard > r.timeouts {
			t.Errorf("%s: %d requests, %d attempts, %d timeouts, %d answers that nobody heard, %d left inside",
				sc.Guard.Name, r.offered, r.attempts, r.timeouts, r.unheard, r.inside)
		}
	}
	wrong := &FleetResult{offered: 3, good: 1, failed: 1, answers: 1, attempts: 1}
	if err := wrong.Check(); err == nil || !strings.Contains(err.Error(), "requests end once: 3 is not 2") {
		t.Errorf("a lost request: %v", err)
	}
}

func TestFleetReplays(t *testing.T) {
	for _, guard := range []Guard{{Name: "warden", Warden: true}, {Name: "bound", Static: 4, Queue: 64}} {
		sc := small(0.7, guard)
		sc.Length = 8 * time.Second
		numbers := func(sc Fleet) FleetResult {
			r := *runFleet(t, sc)
			r.Fleet = Fleet{}
			return r
		}
		first, every := numbers(sc), cmp.Exporter(func(reflect.Type) bool { return true })
		if diff := cmp.Diff(first, numbers(sc), every); diff != "" {
			t.Errorf("%s: the same seed, and (-first +again)\n%s", guard.Name, diff)
		}
		sc.Seed++
		if cmp.Equal(first, numbers(sc), every) {
			t.Errorf("%s: another seed changes nothing", guard.Name)
		}
	}
}

// Where users ask for more than the fleet can do, it does what Capacity says.
func TestFleetCapacityIsWhatTheModelCanDo(t *testing.T) {
	for _, sc := range []Fleet{computing(2, 2), waiting(2, 2)} {
		sc.Retry, sc.Length, sc.Guard = once(), 10*time.Second, under(sc)[3].Guard
		r := runFleet(t, sc)
		if rate := float64(r.executed[0].all) / sc.Length.Seconds(); rate < 0.95*sc.Capacity || rate > 1.05*sc.Capacity {
			t.Errorf("%+v: %.0f per second, said to be %.0f", sc.Work, rate, sc.Capacity)
		}
	}
}

// Our client alone, before servers that nothing guards: back within 5 s, 1.1 attempts for each request that is sent.
func TestFleetComesBackByItsClientsAlone(t *testing.T) {
	for _, callers := range []int{1, 4} {
		sc := small(0.7, Guard{Name: "nothing"})
		sc.Retry = Retry{Callers: callers}
		r := runFleet(t, sc)
		if d, ok := r.Recovery(); !ok || d > 5*time.Second || r.before().success() < 0.999 || r.after().success() < 0.999 {
			t.Errorf("%d callers: %s", callers, FleetTable([]*FleetResult{r}))
		}
		sc = down(computing(2, 0.7))
		sc.Retry = Retry{Callers: callers}
		refused := runFleet(t, sc)
		w := refused.refused()
		// An attempt counts when it is made, a request when it comes.
		if sent := w.offered - w.throttled; w.throttled == 0 || w.attempts <= sent || float64(w.attempts) > 1.1*float64(sent)+5 {
			t.Errorf("%d callers: %+v", callers, w)
		}
		if d, ok := refused.Recovery(); !ok || d > 5*time.Second {
			t.Errorf("%d callers: %s", callers, FleetTable([]*FleetResult{refused}))
		}
	}
}

// Deadlines and criticality that travel through three hops, and what is lost without.
func TestFleetOfThreeHops(t *testing.T) {
	with, without := runFleet(t, hops(250*ms, true)), runFleet(t, hops(250*ms, false))
	if with.Wasted() > 0.01 || with.steady().criticalSuccess() < 0.99 || with.steady().success() < 0.48 {
		t.Error(HopTable([]*FleetResult{with}))
	}
	if without.Wasted() < 2*with.Wasted() || without.steady().criticalSuccess() > 0.8 {
		t.Error(HopTable([]*FleetResult{without}))
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
	run := func(sc Fleet) *FleetResult {
		began := time.Now()
		r := runFleet(t, sc)
		fmt.Println(sc.Retry.Name, strings.Split(FleetTable([]*FleetResult{r}), "\n")[2], time.Since(began).Round(ms))
		return r
	}
	var all []*FleetResult
	for _, sc := range Fleets() {
		if !regexp.MustCompile(*only).MatchString(sc.Name) {
			continue
		}
		var runs []*FleetResult
		for _, sc := range under(sc) {
			runs = append(runs, run(sc))
		}
		all = append(all, runs...)
		if name, ok := fleetPlots[sc.Name]; ok && *write != "" {
			must(t, os.WriteFile(filepath.Join(*write, "fleet-"+name+".svg"), []byte(FleetSVG(runs)), 0o644))
		}
	}
	if *write == "" || *only != "" {
		return
	}
	var rows [][]*FleetResult
	for _, load := range []float64{0.25, 0.4, 0.7, 0.95} {
		var row []*FleetResult
		for _, sc := range under(step(computing(5, load))) {
			row = append(row, run(sc))
		}
		rows = append(rows, row)
	}
	var byClient [][]*FleetResult
	for _, client := range clients() {
		var row []*FleetResult
		for _, sc := range []Fleet{step(computing(size, 0.7)), slow(waiting(size, 0.7))} {
			sc.Retry = client
			row = append(row, run(sc))
			sc.Guard = Guard{Name: "warden", Warden: true}
			row = append(row, run(sc))
		}
		sc := down(computing(size, 0.7))
		sc.Retry = client
		byClient = append(byClient, append(row, run(sc)))
	}
	var chains []*FleetResult
	for _, patience := range []time.Duration{250 * ms, 100 * ms} {
		chains = append(chains, run(hops(patience, false)), run(hops(patience, true)))
	}
	file := filepath.Join(*write, "fleet.md")
	page, err := os.ReadFile(file)
	must(t, err)
	text, err := Splice(string(page), "Twenty servers, users who make 3 attempts at once.\n\n"+FleetTable(all)+
		"\nFive servers, the same users, a step to 2 for 3 s at different loads: back after, and answered in the end.\n\n"+LoadTable(rows)+
		"\nTwenty servers, by client: back after (attempts per request while the trigger is there); and the attempts of the last 10 s in which all is refused.\n\n"+ClientTable(byClient)+
		"\nThree hops of four servers under wardens, of which the last can do half of what is asked for; no retries.\n\n"+HopTable(chains))
	must(t, err)
	must(t, os.WriteFile(file, []byte(text), 0o644))
}

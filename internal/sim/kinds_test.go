// SPDX-License-Identifier: Apache-2.0

// Several kinds of work in one world: identical ones are one, and each has its own work, deadline and share.

package sim

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A world of one kind and the same world of two identical kinds have the same runs, to the last request.
func TestIdenticalKindsAreOneKind(t *testing.T) {
	for seed := range uint64(10) {
		if Draw(seed).cost() > affordable {
			continue
		}
		one, two := Draw(seed), Draw(seed)
		two.Kinds = append(two.Kinds, two.Kinds[0])
		two.Kinds[0].Of, two.Kinds[1].Of = 1, 3
		for _, g := range []Guard{Failsafe, Static(8), Ours} {
			a, b := try(t, one, g, false), try(t, two, g, false)
			if diff := cmp.Diff(a, b, cmpopts.IgnoreFields(Result{}, "World", "Kinds"), every); diff != "" {
				t.Fatalf("seed %d, %s: two identical kinds differ from one (-one +two)\n%s", seed, g.Name, diff)
			}
			few, many := b.Kinds[0], b.Kinds[1]
			if few.Offered+many.Offered != a.Kinds[0].Offered || few.Good+many.Good != a.Kinds[0].Good {
				t.Errorf("seed %d, %s: %+v and %+v are not %+v", seed, g.Name, few, many, a.Kinds[0])
			}
			near(t, "share of the first kind, seed "+strconv.FormatUint(seed, 10), float64(few.Offered)/float64(a.Kinds[0].Offered), 0.25,
				0.25)
		}
	}
}

// quickAndSlow is a server that two kinds share: one in three users asks for 10 ms of a dependency and the others for 100 ms.
func quickAndSlow(load, quickly, slowly float64) *World {
	kind := func(of, service, patience float64, knows string) Kind {
		return Kind{Of: of, Service: service, Share: 0.001, Spread: "exact", Patience: patience, Knows: knows, Critical: 0.2,
			Normal: 0.8}
	}
	w := &World{
		Kinds: []Kind{kind(1, 0.01, quickly, "told"), kind(2, 0.1, slowly, "cancel")},
		Cores: 4, Places: 1, Shape: "steady", Length: 400,
	}
	w.Peak = load * w.capacity(0)
	return w
}

// Two kinds with two deadlines: each is judged by its own. Behind one place, who cannot wait for a slow execution is turned away,
// and who can is answered.
func TestTwoKindsTwoDeadlines(t *testing.T) {
	for _, c := range []struct {
		name        string
		patience    [2]float64
		least, most [2]float64 // share that is answered
	}{
		{"both wait", [2]float64{60, 60}, [2]float64{1, 1}, [2]float64{1, 1}},
		{"quick ones cannot wait", [2]float64{0.03, 60}, [2]float64{0.2, 1}, [2]float64{0.75, 1}},
		{"slow ones cannot wait", [2]float64{60, 0.13}, [2]float64{1, 0.2}, [2]float64{1, 0.8}},
	} {
		w := quickAndSlow(0.5, c.patience[0], c.patience[1])
		r := try(t, w, Static(1), false)
		near(t, c.name+": quick ones per second", float64(r.Kinds[0].Offered)/(w.Length-c.patience[0]), w.Peak/3, 0.1)
		for k, got := range r.Kinds {
			if share := got.Share(); share < c.least[k] || share > c.most[k] {
				t.Errorf("%s: kind %d: %.3f answered, not %.3g to %.3g", c.name, k, share, c.least[k], c.most[k])
			}
		}
	}
}

// The capacity of a mix is what the model can do of it, and every spread has the mean and the median that the world says.
func TestCapacityIsWhatTheModelCanDo(t *testing.T) {
	computing := quickAndSlow(1, 60, 60)
	computing.Kinds[0].Share, computing.Kinds[1].Share = 1, 0.6
	with := func(change func(w *World)) *World {
		w := quickAndSlow(3, 60, 60)
		w.Places = 6
		change(w)
		return w
	}
	for name, w := range map[string]*World{
		"dependency": quickAndSlow(3, 60, 60), "processors": computing,
		"a database smaller than its pool": with(func(w *World) { w.Behind = 3 }),
		"two places a call":                with(func(w *World) { w.Kinds[0].Twice, w.Kinds[1].Twice = true, true }),
		"two pools":                        with(func(w *World) { w.More, w.Kinds[0].Pool = []int{1}, 1 }),
		"calls five times slower":          with(func(w *World) { w.Spells = []Spell{{Until: w.Length, Slow: 5}} }),
		"a fleet":                          like(cpuFleet(2, 3), func(w *World) { w.Retry = once() }),
		"a fleet and its dependency":       like(ioFleet(2, 3), func(w *World) { w.Retry = once() }),
		"two of four processors stolen": with(func(w *World) {
			w.Places, w.Kinds[0].Share, w.Kinds[1].Share, w.Spells = 0, 1, 0.6, []Spell{{Until: w.Length, Stolen: 2}}
		}),
	} {
		w.Places *= 1 + 99*one(name == "processors")
		w.Peak = 3 * w.capacity(0)
		near(t, name, float64(try(t, w, Pool("64", 64, 0), false).Executed)/w.Length, w.capacity(0), 0.03)
	}
	testSpreads(t)
}

func testSpreads(t *testing.T) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 1))
	for _, spread := range []string{"exact", "20%", "exponential", "1:40", "pareto"} {
		k, all, sum := Kind{Service: 1, Spread: spread}, []float64(nil), 0.0
		for range 100_001 {
			all = append(all, k.factor(r))
			sum += all[len(all)-1]
		}
		slices.Sort(all)
		near(t, "mean of "+spread, sum/float64(len(all)), 1, 0.03)
		near(t, "median of "+spread, all[len(all)/2], k.median(), 0.02)
	}
}

// What never ends keeps its slots, and of what the server ends, its slot is free while the dependency goes on.
func TestWorkWithoutAnEnd(t *testing.T) {
	w := quickAndSlow(0.5, 60, 60)
	w.Holders, w.Cut = 4, true
	if r := try(t, w, Static(4), false); r.All.Good > 0 || r.held != 4 {
		t.Errorf("four slots for four that never end: %d answers, %d held", r.All.Good, r.held)
	}
	if r := try(t, w, Static(5), false); r.Warm.Share() < 0.99 {
		t.Errorf("a slot more than those that never end: %.3f answered", r.Warm.Share())
	}

	// Ten times what one place can do: those that leave a call behind make no room there.
	w = quickAndSlow(10, 0.05, 0.2)
	for i := range w.Kinds {
		w.Kinds[i].Knows, w.Kinds[i].Outlives = "told", true
	}
	r := try(t, w, Static(1000), false)
	if r.Answers > 10 || r.stats.Running != 0 || r.Executed < 1000 {
		t.Errorf("%d answers, %d running at the end, %d executed", r.Answers, r.stats.Running, r.Executed)
	}
	w.Kinds[0].Outside = true
	if r = try(t, w, Static(1000), false); r.Asked >= r.Sent || r.Asked == 0 {
		t.Errorf("%d of %d asked the limiter, although a kind passes by it", r.Asked, r.Sent)
	}
}

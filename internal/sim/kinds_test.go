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
	for seed := range uint64(6) {
		one, two := Draw(seed), Draw(seed)
		two.Kinds = append(two.Kinds, two.Kinds[0])
		two.Kinds[0].Of, two.Kinds[1].Of = 1, 3
		for _, g := range []Guard{Failsafe, Static(8), Ours} {
			a, b := try(t, one, g, false), try(t, two, g, false)
			if diff := cmp.Diff(a, b, cmpopts.IgnoreFields(Result{}, "World", "Kinds", "Noes"), every); diff != "" {
				t.Fatalf("seed %d, %s: two identical kinds differ from one (-one +two)\n%s", seed, g.Name, diff)
			}
			few, many := b.Kinds[0], b.Kinds[1]
			if few.Offered+many.Offered != a.Kinds[0].Offered || few.Good+many.Good != a.Kinds[0].Good {
				t.Errorf("seed %d, %s: %+v and %+v are not %+v", seed, g.Name, few, many, a.Kinds[0])
			}
			near(t, "share of the first kind, seed "+strconv.FormatUint(seed, 10), float64(few.Offered)/float64(a.Kinds[0].Offered), 0.25, 0.25)
		}
	}
}

// quickAndSlow is a server that two kinds share: one in three users asks for 10 ms of a dependency and the others for 100 ms.
func quickAndSlow(load, quickly, slowly float64) *World {
	kind := func(of, service, patience float64, knows string) Kind {
		return Kind{Of: of, Service: service, Share: 0.001, Spread: "exact", Patience: patience, Knows: knows, Critical: 0.2, Normal: 0.8}
	}
	w := &World{
		Kinds: []Kind{kind(1, 0.01, quickly, "told"), kind(2, 0.1, slowly, "cancel")},
		Cores: 4, Places: 1, Shape: "steady", Length: 400,
	}
	w.Peak = load * w.capacity(0)
	return w
}

// Two kinds with two deadlines: each is judged by its own. Behind one place, who cannot wait for a slow execution is turned away, and
// who can is answered.
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
	for name, w := range map[string]*World{"dependency": quickAndSlow(3, 60, 60), "processors": computing} {
		w.Places *= 1 + 99*one(name == "processors")
		w.Peak = 3 * w.capacity(0)
		near(t, name, float64(try(t, w, Pool("64", 64, 0), false).Executed)/w.Length, w.capacity(0), 0.03)
	}
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

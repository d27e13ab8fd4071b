// SPDX-License-Identifier: Apache-2.0

// Pools that are not all that work waits for: two of them, one that only some requests use or that others use as well, calls that
// take two connections, and a database that is smaller than its pool.

package sim

import (
	"fmt"
	"strings"
	"testing"
)

// query is a kind that holds a connection of a pool for 40 ms.
func query(of float64, pool int) Kind {
	k := work(ms/5, 40*ms)
	k.Of, k.Pool, k.Normal = of, pool, 0.8
	return k
}

// Under more than the pools can do, the warden that is told answers nearly all of what they can do and of the critical users. Its
// limit is near what the tightest pool has enough for, and its reasons name that pool. One limit serves all kinds alike: also
// those who do not use the pool get no more than it leaves.
func TestPoolsOfAllSorts(t *testing.T) {
	twice, beside := query(1, 0), query(0.15, 0)
	twice.Twice, beside.Outside = true, true
	for _, c := range []struct {
		name              string
		loads             []float64
		world             World
		tightest          string  // pool; none: the limit keeps it from being full
		goodput, critical float64 // at least
		limit             float64 // on average at most
	}{
		{"one", []float64{2, 4}, World{Kinds: []Kind{query(1, 0)}, Places: 10}, "0", 0.95, 0.98, 12},
		{"two, of which the second is full at 8", []float64{2, 4},
			World{Kinds: []Kind{query(1, 0), query(1, 1)}, Places: 10, More: []int{4}}, "1", 0.9, 0.96, 10},
		{"one that half use, so it is full at 20", []float64{2, 4}, World{Kinds: []Kind{query(1, 0), query(1, -1)}, Places: 10}, "0",
			0.93, 0.98, 23},
		{"two connections a call", []float64{2, 4}, World{Kinds: []Kind{twice}, Places: 10}, "0", 0.98, 0.98, 12},
		{"others take 0.3 of it", []float64{2}, World{Kinds: []Kind{query(0.85, 0), beside}, Places: 10}, "0", 0.63, 0.95, 12},
		{"half of it is served", []float64{2, 4}, World{Kinds: []Kind{query(1, 0)}, Places: 10, Behind: 5}, "", 0.98, 0.98, 12},
	} {
		for _, load := range c.loads {
			for _, g := range []Guard{Told, InUse} {
				w := c.world
				w.Seed, w.Cores, w.Shape, w.Warm, w.Length, w.Cut = 7, 4, "steady", 5, 25, true
				w.Peak = load * w.capacity(0)
				r := try(t, &w, g, true)
				what, critical, names := fmt.Sprintf("%s, %g×, %s", c.name, load, g.Name), r.Warm.CriticalShare(), r.names(c.tightest)
				if r.Goodput() < c.goodput || critical < c.critical || r.Mean > c.limit {
					t.Errorf("%s: goodput %.3f, critical %.3f, mean limit %.1f, not %g, %g, %g", what, r.Goodput(), critical, r.Mean, c.goodput,
						c.critical, c.limit)
				}
				if c.tightest != "" && names < 0.6 {
					t.Errorf("%s: only %.2f of the decisions say that pool %s is full", what, names, c.tightest)
				}
				for i := range w.Kinds {
					if !w.Kinds[i].Outside {
						near(t, what+": the share of a kind", r.Kinds[i].Share(), r.Warm.Share(), 0.06)
					}
				}
			}
		}
	}
}

// names is the share of decisions after Warm which say that this pool is full.
func (r *Result) names(pool string) float64 {
	var said, all float64
	for _, p := range r.points {
		if at := p.at.Seconds(); at >= r.World.Warm && at < r.World.Length {
			all++
			said += float64(one(strings.Contains(reasons(p.rules), "pool_full: "+pool+": ")))
		}
	}
	return said / all
}

// SPDX-License-Identifier: Apache-2.0

// Random worlds of a real service: several kinds of work, some that never end or outlive their slot, pools, and a service that
// changes.

package sim

import (
	"math/rand/v2"
)

// Mixed returns the world of a seed: two to five kinds of work that share processors and up to two pools.
func Mixed(seed uint64) *World {
	r := rand.New(rand.NewPCG(seed, 78))
	chance := func(p float64) bool { return r.Float64() < p }
	for {
		w := &World{Seed: seed, Cores: 1 << r.IntN(5), Shape: pick(r, "steady", "steady", "step", "pulse", "waves"), Cut: true}
		w.Retry.Attempts, w.Retry.Backoff = 1, logUniform(r, 0.2, 2)
		if chance(0.25) {
			w.Retry.Attempts = 3
		}
		if chance(0.65) {
			w.Places = int(logUniform(r, 1, 100.99))
			if chance(0.2) {
				w.Behind = max(1, int(float64(w.Places)*logUniform(r, 0.1, 1)))
			}
			if chance(0.3) {
				w.More = []int{int(logUniform(r, 1, 50.99))}
			}
		}
		slowest, longest := 0.0, 0.0
		for range 2 + r.IntN(4) {
			k := Kind{Of: logUniform(r, 0.05, 1), Service: logUniform(r, 0.001, 10), Share: r.Float64(), Critical: 0.2,
				Normal: []float64{0.8, 0.5}[r.IntN(2)]}
			k.Spread = pick(r, "exact", "20%", "exponential", "1:40")
			if chance(0.6) {
				k.Share = logUniform(r, 0.0005, 0.1)
			}
			k.Knows, k.Vary = pick(r, "told", "cancel", "hidden"), []float64{0, 0.5}[r.IntN(2)]
			k.Patience = max(k.Service, 0.05) * logUniform(r, 1.5, 30)
			k.Pool = r.IntN(2+len(w.More)) - 1
			k.Twice = k.Pool >= 0 && w.places(k.Pool) > 3 && chance(0.1)
			k.Outlives = k.Knows != "hidden" && chance(0.3)
			slowest, longest = max(slowest, k.Service), max(longest, k.Patience*float64(w.Retry.Attempts)*(1+k.Vary))
			w.Kinds = append(w.Kinds, k)
		}
		if chance(0.15) { // jobs, whose users wait as long as it takes
			k := Kind{Of: 0.01, Service: logUniform(r, 20, 120), Share: logUniform(r, 0.001, 1), Spread: "20%", Patience: 1e9,
				Knows: "hidden", Normal: 0, Pool: -1}
			w.Kinds = append(w.Kinds, k)
		}
		if chance(0.1) {
			w.Kinds[0].Outside = true
		}
		load := logUniform(r, 0.3, 6)
		w.Peak = load * w.capacity(0)
		w.Low = w.Peak
		if w.Shape != "steady" {
			w.Low = (0.2 + 0.6*r.Float64()) * min(w.Peak, w.capacity(0))
		}
		w.Length = max(20, 10*slowest, 500/min(w.Peak, w.capacity(0))) + min(longest, 120)
		if chance(0.5) {
			w.Warm = 0.25 * (w.Length - min(longest, 120))
		}
		at := w.Length * (0.2 + 0.3*r.Float64())
		switch x := r.Float64(); {
		case x < 0.15:
			w.Holders = int(logUniform(r, 1, 400.99))
			w.From = []float64{0, at}[r.IntN(2)]
		case x < 0.35:
			s := Spell{From: at, Until: w.Length, Slow: []float64{5, 10, 25}[r.IntN(3)]}
			if chance(0.5) {
				s.Until = at + w.Length*0.15
			}
			w.Spells = append(w.Spells, s)
		case x < 0.5 && w.Cores > 1:
			for range 3 {
				w.Spells = append(w.Spells, Spell{From: at, Until: at + w.Length*0.06, Stolen: 1 + r.IntN(w.Cores-1)})
				at += w.Length * 0.15
			}
		}
		if w.cost() < affordable {
			return w
		}
	}
}

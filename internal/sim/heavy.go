// SPDX-License-Identifier: Apache-2.0

// Random worlds whose tasks hold memory: kinds of different size under a limit, or with room for all.

package sim

import (
	"math/rand/v2"
)

// Heavy returns the world of a seed.
func Heavy(seed uint64) *World {
	const mega = 1 << 20
	r := rand.New(rand.NewPCG(seed, 79))
	chance := func(p float64) bool { return r.Float64() < p }
	for {
		w := &World{Seed: seed, Cores: 1 << r.IntN(4), Shape: pick(r, "steady", "steady", "step", "pulse", "waves"), Cut: true,
			Heap: &Heap{Limit: 256 * mega, Soft: chance(0.7), Growth: 1, Mark: 1e-9}}
		w.Retry.Attempts, w.Retry.Backoff = 1, 1
		h := w.Heap
		h.Base = h.Limit * logUniform(r, 0.01, 0.3)
		if chance(0.3) {
			h.Mark *= 5 // trees
		}
		for range 1 + r.IntN(3) {
			k := Kind{Of: logUniform(r, 0.1, 1), Service: logUniform(r, 0.02, 2), Share: logUniform(r, 0.01, 0.5), Critical: 0.2,
				Normal: 0.8, Holds: h.Limit * logUniform(r, 0.0005, 0.08), Varies: chance(0.5), Pool: -1}
			k.Spread, k.Knows = pick(r, "exact", "20%", "exponential"), pick(r, "told", "cancel", "hidden")
			if chance(0.25) {
				k.Holds = 0
			}
			k.Patience = k.Service * logUniform(r, 2, 20)
			w.Kinds = append(w.Kinds, k)
		}
		switch x := r.Float64(); {
		case x < 0.25:
			h.Cache, h.Filling = h.Limit*0.3*r.Float64(), 5+20*r.Float64()
		case x < 0.3:
			h.Leak = h.Limit * 0.002
		}
		if h.Soft && chance(0.25) {
			h.Growth = 0
		}
		if chance(0.1) {
			h.Limit, h.Soft, h.Growth = 0, false, 1
		}
		w.Peak = logUniform(r, 0.3, 6) * w.capacity(0)
		w.Low = w.Peak
		if w.Shape != "steady" {
			w.Low = (0.2 + 0.6*r.Float64()) * min(w.Peak, w.capacity(0))
		}
		if at := min(3*w.capacity(0), w.Peak) * w.service(); h.Limit > 0 && w.holds() > 0 && chance(0.6) {
			// What would run at a time needs from a third of the memory to four times as much.
			scale := logUniform(r, 0.3, 4) * h.Limit / (at * w.holds())
			for i := range w.Kinds {
				w.Kinds[i].Holds = min(scale*w.Kinds[i].Holds, 0.1*h.Limit)
			}
		}
		longest := 0.0
		for _, k := range w.Kinds {
			longest = max(longest, k.Patience)
		}
		w.Length = max(30, 20*w.service(), 900/min(w.Peak, w.capacity(0))) + longest
		if w.cost() < affordable {
			return w
		}
	}
}

// holds is the mean of what tasks hold.
func (w *World) holds() (bytes float64) {
	all := 0.0
	for i := range w.Kinds {
		all += w.Kinds[i].Of
		bytes += w.Kinds[i].Of * w.Kinds[i].Service * w.Kinds[i].Holds
	}
	return bytes / (all * w.service())
}

// roomy reports whether memory must not matter: no limit, or a load below .9 that never needs more without a guard than half of
// what live data may use.
func (t *Trial) roomy() bool {
	h := t.World.Heap
	if h.Limit == 0 {
		return true
	}
	usable := h.Limit
	if !h.Soft {
		usable *= 0.75 / (1 + h.Growth)
	}
	return t.World.Load() < 0.9 && t.Open.Killed == 0 && t.Open.Heaviest < 0.5*usable
}

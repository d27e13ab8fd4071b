// SPDX-License-Identifier: Apache-2.0

// Users: their arrival, work and patience, drawn before the run and independent of it.

package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// user is one request with all its attempts.
type user struct {
	at       time.Duration // arrival, since the start
	kind     *Kind
	priority decision.Priority
	computes time.Duration // processor time of one execution
	calls    time.Duration // time at the dependency
	patience time.Duration // per attempt
	holds    float64       // bytes, while it runs
	luck     float64       // factor 0.5 to 1.5 on the usual backoff

	attempts int
	good     bool          // answered in time
	refused  bool          // the last attempt was
	ended    time.Duration // when the outcome was known
}

// users draws all users in order of arrival. Which kind each asks for has a random source of its own, so that kinds that are
// alike are one kind to the last draw.
func (w *World) users() []user {
	r, kinds := rand.New(rand.NewPCG(w.Seed, 11)), rand.New(rand.NewPCG(w.Seed, 13))
	sizes := rand.New(rand.NewPCG(w.Seed, 19))
	most := max(w.Peak, w.Low)
	for _, s := range w.Spells {
		most = max(most, s.Rate)
	}
	var all []user
	for at := 0.0; ; {
		at += r.ExpFloat64() / most
		if at >= w.Length {
			return w.hold(all)
		}
		// Thinning keeps a rate exact that changes between two arrivals.
		if r.Float64()*most >= w.rate(at) {
			continue
		}
		k := w.pick(at, kinds)
		u := user{at: seconds(at), kind: k, priority: k.priority(r)}
		f := k.factor(r)
		u.computes, u.calls = seconds(k.Service*k.Share*f), seconds(k.Service*(1-k.Share)*f)
		u.patience = seconds(k.Patience * math.Exp(k.Vary*r.NormFloat64()))
		u.luck = 0.5 + r.Float64()
		if u.holds = k.Holds; k.Varies {
			u.holds *= sizes.ExpFloat64()
		}
		all = append(all, u)
	}
}

// endless is the kind of what never ends; a client that goes leaves it behind.
var endless = Kind{Service: 1, Spread: "exact", Patience: 1e9, Knows: "hidden", Pool: -1}

func (w *World) hold(all []user) []user {
	for i := range w.Holders {
		all = append(all, user{at: seconds(w.From + float64(i)/100), kind: &endless, priority: decision.Normal,
			patience: seconds(endless.Patience)})
	}
	if w.Holders > 0 {
		slices.SortStableFunc(all, func(a, b user) int { return cmp.Compare(a.at, b.at) })
	}
	return all
}

// pick draws one of the kinds of a time by their shares.
func (w *World) pick(at float64, r *rand.Rand) (k *Kind) {
	all, x := 0.0, r.Float64()
	for i := range w.Kinds {
		if w.Kinds[i].asked(at) {
			all += w.Kinds[i].Of
		}
	}
	x *= all
	for i := range w.Kinds {
		if !w.Kinds[i].asked(at) {
			continue
		}
		k = &w.Kinds[i]
		if x -= k.Of; x < 0 {
			break
		}
	}
	return k
}

func (k *Kind) priority(r *rand.Rand) decision.Priority {
	switch x := r.Float64(); {
	case x < k.Critical:
		return decision.Critical
	case x < k.Critical+k.Normal:
		return decision.Normal
	}
	return decision.Background
}

// factor draws the execution time relative to its mean.
func (k *Kind) factor(r *rand.Rand) float64 {
	const deviation = 0.2
	switch k.Spread {
	case "20%":
		return math.Exp(deviation*r.NormFloat64() - deviation*deviation/2)
	case "exponential":
		return r.ExpFloat64()
	case "1:40":
		if r.Float64() < 0.1 {
			return 40 / 4.9
		}
		return 1 / 4.9
	case "pareto": // with exponent 1.5, from 1 to 100
		return min(math.Pow(1-r.Float64(), -1/1.5), 100) / 2.8
	}
	return 1
}

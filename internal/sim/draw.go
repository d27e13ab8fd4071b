// SPDX-License-Identifier: Apache-2.0

// Random worlds: a seed draws a service of one kind of work, its load, and the patience of its users.

package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
)

// affordable bounds the cost of the runs of one world, in microseconds per run as estimated by cost.
const affordable = 80_000

// Draw returns the world of a seed.
func Draw(seed uint64) *World {
	r := rand.New(rand.NewPCG(seed, 77))
	w := &World{Seed: seed, Kinds: []Kind{{Of: 1, Service: logUniform(r, 0.0002, 60), Share: r.Float64()}}, Cores: 1 << r.IntN(7)}
	k := &w.Kinds[0]
	k.Spread = pick(r, "exact", "20%", "exponential", "1:40")
	switch x := r.Float64(); {
	case x < 0.35:
		k.Share = logUniform(r, 0.0005, 0.05)
	case x < 0.45:
		k.Share = 1
	case x < 0.5:
		k.Share = 0
	}
	bounded := r.Float64() < 0.65 && k.Share < 1
	load := logUniform(r, 0.2, 10)
	w.Shape = pick(r, "steady", "steady", "steady", "step", "pulse", "sawtooth")
	low := 0.2 + 0.6*r.Float64()
	warm := r.Float64() < 1./3
	k.Knows = pick(r, "told", "cancel", "hidden")
	k.Patience = logUniform(r, max(k.Service, 0.05), 120)
	k.Vary = []float64{0, 0, 0.5}[r.IntN(3)]
	k.Critical, k.Normal = 0.2, []float64{0.8, 0.5}[r.IntN(2)]
	w.Retry.Attempts = 1
	if r.Float64() < 1./3 {
		w.Retry.Attempts = 3
	}
	w.Retry.Backoff = logUniform(r, 0.2, 2)
	for try := 1; ; try++ {
		w.Places = 0
		if bounded {
			w.Places = int(logUniform(r, 1, 500.99))
		}
		// Nearly unlimited worlds need some bound on the offered load.
		w.Peak = load * min(w.capacity(0), logUniform(r, min(2, 100*k.Service), 800)/k.Service)
		w.Low = w.Peak
		if w.Shape != "steady" {
			w.Low = low * min(w.Peak, w.capacity(0))
		}
		for _, enough := range []float64{1, 0.6, 0.4} {
			// Enough executions in sequence, enough decisions, and enough answers for a verdict.
			w.Length = max(50*k.Service, 8) * enough
			few := 350 / (w.possible(0, w.Length, 64) / w.Length)
			if w.Class() == Overload {
				few += 20 * k.Service
			}
			w.Length = max(w.Length, 1.35*few)
			w.Warm = 0
			if warm {
				w.Warm = w.Length / 4
			}
			if w.cost() < affordable {
				w.lengthen()
				return w
			}
		}
		w.Cores = 1 << r.IntN(7)
		if try%20 == 0 {
			load = logUniform(r, 0.2, max(0.2, load))
			k.Share *= r.Float64()
		}
	}
}

// lengthen lets the load go on for as long as patience lasts, so that those are as many who count, as long as the run is
// affordable.
func (w *World) lengthen() {
	short, k := w.Length, &w.Kinds[0]
	for more := float64(w.Retry.Attempts) * k.Patience * (1 + k.Vary); more > 0.1*short; more /= 2 {
		if w.Length = short + more; w.cost() < 4*affordable {
			return
		}
	}
	w.Length = short
}

// cost estimates the cost of a run in microseconds.
func (w *World) cost() float64 {
	_, computes, _ := w.mean(0)
	answers := w.possible(0, w.Length, 64)
	slices := answers * (3 + computes/slice.Seconds())
	return 4*sum(0, w.Length, 64, w.rate) + 6*answers + 0.1*slices + 3*w.Length/tick.Seconds()
}

// String describes the world in one line: what the load is, and the fields that say more than nothing.
func (w *World) String() string {
	return fmt.Sprintf("load %.2f, %.4g at once;%s", w.Load(), w.Peak*w.service(), fields(reflect.ValueOf(*w)))
}

// fields writes the fields of a struct that are not zero.
func fields(v reflect.Value) string {
	var b strings.Builder
	for i := range v.NumField() {
		switch f := reflect.Indirect(v.Field(i)); {
		case v.Field(i).IsZero():
		case f.Kind() == reflect.Struct:
			fmt.Fprintf(&b, " %s{%s }", v.Type().Field(i).Name, fields(f))
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			for k := range f.Len() {
				fmt.Fprintf(&b, " %s{%s }", v.Type().Field(i).Name, fields(f.Index(k)))
			}
		case f.CanFloat():
			fmt.Fprintf(&b, " %s:%.3g", v.Type().Field(i).Name, f.Float())
		default:
			fmt.Fprintf(&b, " %s:%v", v.Type().Field(i).Name, f)
		}
	}
	return b.String()
}

func logUniform(r *rand.Rand, from, to float64) float64 {
	return from * math.Exp(r.Float64()*math.Log(max(to/from, 1)))
}

func pick(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }

// SPDX-License-Identifier: Apache-2.0

// The scenarios: one server that computes, or waits for a dependency, beside the best constant limit, through what may disturb
// it.

package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

const ms = time.Millisecond

// work is a kind that computes and calls for these times on average, with a deadline of 250 ms.
func work(cpu, io time.Duration) Kind {
	return Kind{
		Of: 1, Service: (cpu + io).Seconds(), Share: float64(cpu) / float64(cpu+io), Spread: "20%", Patience: 0.25, Knows: "told",
		Critical: 0.2, Normal: 0.5,
	}
}

// serving is a service under a constant load, relative to its capacity.
func serving(name string, cores, places int, k Kind, load float64, warm, length float64, static ...int) *World {
	w := &World{Seed: 7, Name: name, Kinds: []Kind{k}, Cores: cores, Places: places, Shape: "steady", Warm: warm, Length: length,
		Static: static}
	w.Peak = load * w.capacity(0)
	return w
}

// bound is a CPU-bound service.
func bound(cores int, cost time.Duration, load float64) *World {
	return serving(fmt.Sprintf("CPU %v, %g×", cost, load), cores, 0, work(cost, 0), load, 3, 13, cores+(cores+3)/4, 2*cores)
}

// downstream is a service that waits for a dependency with this many places, 40 ms per call.
func downstream(cores, places int, load float64) *World {
	return serving(fmt.Sprintf("%d servers of 40ms, %g×", places, load), cores, places, work(200*time.Microsecond, 40*ms), load, 5,
		40,
		places, places+(places+9)/10, places+(places+3)/4)
}

// mixed is a service that computes for 4 ms and waits 20 ms for a dependency without a limit.
func mixed(cores int, load float64) *World {
	return serving(fmt.Sprintf("CPU 4ms and I/O 20ms, %g×", load), cores, 0, work(4*ms, 20*ms), load, 3, 13, 7*cores, 8*cores,
		10*cores)
}

func named(name string, w *World, change func(w *World)) *World {
	change(w)
	w.Name = name
	return w
}

func heavy(w *World) { w.Kinds[0].Spread = "pareto" }

func pauses(w *World) {
	for at := 1.0; at < w.Length; at += 2 {
		w.Spells = append(w.Spells, Spell{From: at, Until: at + 0.04, Pause: true})
	}
}

// Scenarios are all scenarios.
func Scenarios() []*World {
	var all []*World
	for _, load := range []float64{0.7, 1, 1.5, 2, 4, 10} {
		all = append(all, bound(2, 4*ms, load))
	}
	for _, load := range []float64{0.7, 4} {
		all = append(all, bound(2, 1*ms, load), bound(2, 16*ms, load), bound(8, 4*ms, load), bound(64, 16*ms, load),
			bound(128, 16*ms, load))
	}
	for _, load := range []float64{0.7, 2, 4} {
		all = append(all, mixed(2, load), mixed(8, load))
	}
	all = append(all, mixed(64, 2))
	for _, load := range []float64{0.7, 1, 2, 4} {
		all = append(all, downstream(2, 10, load))
	}
	all = append(all, downstream(8, 10, 2), downstream(128, 10, 2), downstream(8, 100, 0.7), downstream(8, 100, 2))
	large := downstream(64, 400, 2)
	large.Length = 15
	all = append(all, large)

	slow := func(load float64, deadline time.Duration) *World {
		return named(fmt.Sprintf("10 servers, 5 times slower 20-40s, %g×, %v", load, deadline), downstream(2, 10, load),
			func(w *World) {
				w.Length, w.Kinds[0].Patience = 60, deadline.Seconds()
				w.Spells = []Spell{{From: 20, Until: 40, Slow: 5}} // users do not react: the offered load stays the same
			})
	}
	turn := serving("CPU 4ms / I/O 100ms in turn, 2×", 2, 0, work(4*ms, 0), 2, 3, 43, 8, 16, 32, 64, 128, 256)
	turn.Kinds = nil
	for at := 0.0; at < turn.Length; at += 10 {
		// Every 10 s the requests change between CPU-bound work and waits of 100 ms with 1 ms of computing.
		k := work(4*ms, 0)
		if int(at/10)%2 == 1 {
			k = work(1*ms, 100*ms)
		}
		k.From, k.Until = at, at+10
		turn.Kinds = append(turn.Kinds, k)
		turn.Spells = append(turn.Spells, Spell{From: at, Until: at + 10, Rate: 2 * turn.capacity(at)})
	}
	return append(all,
		slow(0.7, 250*ms), slow(2, 250*ms), slow(2, 500*ms),
		named("step 0.6× 5× 0.6×, CPU 4ms", bound(2, 4*ms, 0.6), func(w *World) {
			w.Length, w.Spells = 20, []Spell{{From: 7, Until: 14, Rate: 5 * w.capacity(0)}}
		}),
		named("sawtooth 0.5× to 4×, CPU 4ms", bound(8, 4*ms, 4), func(w *World) {
			w.Length, w.Shape, w.Low = 16, "sawtooth", w.Peak/8
		}),
		turn,
		named("heavy tails (Pareto 1.5), CPU 4ms, 2×", bound(8, 4*ms, 2), heavy),
		named("heavy tails (Pareto 1.5), 10 servers, 2×", downstream(2, 10, 2), heavy),
		named("pause of 40ms every 2s, CPU 4ms, 0.7×", bound(8, 4*ms, 0.7), pauses),
		named("pause of 40ms every 2s, CPU 4ms, 4×", bound(8, 4*ms, 4), pauses),
		named("no samples 5-9s, CPU 4ms, 0.7× to 4× at 6s", bound(2, 4*ms, 0.7), func(w *World) {
			w.Length, w.Spells = 15, []Spell{{From: 5, Until: 9, Blind: true}, {From: 6, Until: 15, Rate: 4 * w.capacity(0)}}
		}),
		named("GOMAXPROCS 8, 2 at 8s, 8 at 16s, CPU 4ms, 2×", bound(8, 4*ms, 2), func(w *World) {
			w.Length, w.Spells = 24, []Spell{{From: 8, Until: 16, Cores: 2, Rate: w.Peak / 4}}
		}),
		// Nothing is ever overloaded here: a controller that confuses slower work with waiting would lose throughput.
		named("mix: 40ms, 160ms from 15s, room for all, 100/s", downstream(2, 0, 1), func(w *World) {
			slower := work(200*time.Microsecond, 160*ms)
			w.Kinds[0].Until, slower.From, slower.Until = 15, 15, 40
			w.Kinds, w.Peak, w.Static = append(w.Kinds, slower), 100, []int{100}
		}))
}

// Goodput is answers in time as a fraction of the possible: the offered requests, at most the capacity.
func (r *Result) Goodput() float64 {
	w := r.World
	return float64(r.Warm.Good) / w.possible(w.Warm, w.Length-w.outlast(seconds(w.Kinds[0].Patience)).Seconds(), 4000)
}

// Latency is a quantile of good answers' times, of all users or of critical ones.
func (r *Result) Latency(q float64, critical bool) time.Duration {
	var took []time.Duration
	for i := range r.users {
		if u := &r.users[i]; u.good && u.at.Seconds() >= r.World.Warm && (!critical || u.priority == decision.Critical) {
			took = append(took, u.ended-u.at)
		}
	}
	slices.Sort(took)
	return quantile(took, q)
}

// Target returns mean and coefficient of variation of the concurrency limit after Warm, while users arrived.
func (r *Result) Target() (mean, variation float64) {
	var n, s, s2 float64
	for _, p := range r.points {
		if at := p.at.Seconds(); at >= r.World.Warm && at < r.World.Length {
			n, s, s2 = n+1, s+float64(p.target), s2+float64(p.target)*float64(p.target)
		}
	}
	mean = s / n
	return mean, math.Sqrt(max(s2/n-mean*mean, 0)) / mean
}

// steady reports that load and service do not change, so the concurrency limit should not either.
func (w *World) steady() bool {
	return w.constant() && w.Shape == "steady" && !slices.ContainsFunc(w.Spells, func(s Spell) bool { return s.Rate > 0 })
}

// Misses returns the goals that a law misses in a scenario.
func (t *Trial) Misses() (misses []string) {
	v, r := t.Judge(t.Laws[0]), t.Laws[0]
	if v.Goodput < 0.95 {
		misses = append(misses, "goodput")
	}
	// A concurrency limit that does not bind may move without effect. A binding one is tested at times, at 0.75 of its value, and
	// may recover slowly.
	if _, variation := r.Target(); t.World.steady() && t.World.Load() > 1 && variation > 0.3 {
		misses = append(misses, "target moves")
	}
	if v.Critical > 0 {
		misses = append(misses, "critical")
	}
	return misses
}

// ScenarioSummary says how many scenarios there are, and has the rows of those that miss a goal.
func ScenarioSummary(trials []*Trial) string {
	least, missed := math.Inf(1), []*Trial(nil)
	for _, t := range trials {
		if len(t.Misses()) > 0 {
			missed = append(missed, t)
		} else {
			least = min(least, t.Judge(t.Laws[0]).Goodput)
		}
	}
	return fmt.Sprintf("%d of %d scenarios miss nothing, and have at least %.2f of the oracle's goodput. The others:\n\n%s",
		len(trials)-len(missed), len(trials), least, ScenarioTable(missed...))
}

// ScenarioTable is the Markdown table of scenarios.
func ScenarioTable(trials ...*Trial) string {
	var b strings.Builder
	b.WriteString("| cores | scenario | goodput | oracle (its target) | critical | oracle | p50 / p99 | p99 critical | target, variation | miss |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|\n")
	for _, t := range trials {
		r, o := t.Laws[0], t.Oracle
		mean, variation := r.Target()
		fmt.Fprintf(&b, "| %d | %s | %.3f | %.3f (%d) | %.3f | %.3f | %d / %d ms | %d ms | %.0f, %.2f | %s |\n",
			t.World.Cores, t.World.Name, r.Goodput(), o.Goodput(), t.Best, r.Warm.CriticalShare(), o.Warm.CriticalShare(),
			r.Latency(0.5, false).Milliseconds(), r.Latency(0.99, false).Milliseconds(), r.Latency(0.99, true).Milliseconds(),
			mean, variation, strings.Join(t.Misses(), ", "))
	}
	return b.String()
}

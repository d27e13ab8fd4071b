// SPDX-License-Identifier: Apache-2.0

// Worlds of memory: caches, leaks that are not the tasks', traffic that changes its size (C19).

package control_test

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/monitor"
)

var (
	memoryWorlds = flag.Int("memory-worlds", 60, "how many worlds TestMemoryWorlds runs")
	memoryFrom   = flag.Uint64("memory-from", 0, "its first seed; 0: a new one")
)

// A world is a process under Go's collector, and what comes to it. Sizes are shares of what live data may use.
type world struct {
	heap    monitor.Memory
	kill    float64 // bytes of the heap, garbage included, at which the process is killed
	unit    float64 // bytes that live data may use
	mark    float64 // seconds to mark all of it
	base    float64 // held from the start on
	cache   float64 // grows from at on for filling seconds, and stays; or shrinks, below 0
	at      float64
	filling float64
	kinds   []kind
	length  float64
	comes   []arrival
	about   string
	knows   func() int // how many tasks fit, by what is held now
}

type kind struct {
	from, until, rate, took, holds, garbage float64
	varies, gradual                         bool
}

type arrival struct {
	at, took, holds, garbage float64
	gradual                  bool
	has, left                float64 // bytes; seconds
}

// logarithmic draws between low and high.
func logarithmic(r *rand.Rand, low, high float64) float64 {
	return low * math.Exp(r.Float64()*math.Log(high/low))
}

func newWorld(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 45))
	chance := func(p float64) bool { return r.Float64() < p }
	limit := logarithmic(r, 64e6, 16e9)
	w := &world{length: 60 + 60*r.Float64(), mark: logarithmic(r, 0.01, 0.2), base: logarithmic(r, 0.005, 0.25)}
	w.heap = monitor.Memory{Limit: uint64(limit), Soft: chance(0.8), Growth: []float64{0.5, 1, 1, 1, 2}[r.IntN(5)]}
	if w.unit, w.kill = limit, limit*(1.25+0.75*r.Float64()); !w.heap.Soft {
		w.unit, w.kill = 0.75*limit/(1+w.heap.Growth), limit
	} else if chance(0.15) {
		w.heap.Growth = 0
	}
	switch w.about = []string{"cache", "cache", "leak", "shrinking", "none"}[r.IntN(5)]; w.about {
	case "cache":
		w.cache, w.at, w.filling = 0.1+0.75*r.Float64(), 40*r.Float64(), logarithmic(r, 3, 60)
	case "leak":
		w.cache, w.filling = 0.2+0.65*r.Float64(), w.length
	case "shrinking":
		w.base = 0.2 + 0.4*r.Float64()
		w.cache, w.at, w.filling = -0.9*w.base, 10+30*r.Float64(), logarithmic(r, 1, 20)
	}
	w.cache = min(w.cache, 0.85-w.base)
	small := func(from, until float64) {
		took := logarithmic(r, 0.01, 1)
		w.kinds = append(w.kinds, kind{from, until, logarithmic(r, 1, 40) / took, took, logarithmic(r, 1e-6, 0.0005),
			logarithmic(r, 1e-5, 1e-3), chance(0.5), chance(0.5)})
	}
	large := func(from, until float64) {
		k := kind{from, until, 0, logarithmic(r, 0.2, 4), logarithmic(r, 0.005, 0.1), 0.01 * r.Float64(), chance(0.5), chance(0.5)}
		// Up to four times as much as there is; and from there to the death it takes half a second.
		k.rate = min(logarithmic(r, 0.2, 4)/k.holds/k.took, 2*(w.kill/w.unit-1)/k.holds)
		w.kinds = append(w.kinds, k)
	}
	then := w.length * (0.3 + 0.4*r.Float64())
	what := []string{"small", "small", "large", "small, then large", "small, then large", "large, then small", "both", "large besides"}[r.IntN(8)]
	switch w.about += "; " + what; what {
	case "small":
		small(0, w.length)
	case "large":
		large(0, w.length)
	case "small, then large":
		small(0, then)
		large(then, w.length)
	case "large, then small":
		large(0, then)
		small(then, w.length)
	case "both":
		small(0, w.length)
		large(0, w.length)
	case "large besides":
		small(0, w.length)
		large(then, w.length)
	}
	w.arrive(r)
	return w
}

// arrive draws who comes.
func (w *world) arrive(r *rand.Rand) {
	for _, k := range w.kinds {
		k.rate = min(k.rate, 2000)
		for at := k.from; ; {
			if at += r.ExpFloat64() / k.rate; at >= k.until {
				break
			}
			a := arrival{at: at, took: k.took * (0.5 + r.Float64()), holds: k.holds * w.unit, garbage: k.garbage * w.unit, gradual: k.gradual}
			if k.varies {
				a.took, a.holds = k.took*r.ExpFloat64(), a.holds*min(r.ExpFloat64(), 3)
			}
			w.comes = append(w.comes, a)
		}
	}
	slices.SortFunc(w.comes, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
}

// beside is what is held beside tasks at a time.
func (w *world) beside(at float64) float64 {
	return w.unit * (w.base + w.cache*min(max(at-w.at, 0)/max(w.filling, 1), 1))
}

type ran struct {
	killed, heaviest, tasks float64 // when, and the most that was in use, and that of it was the tasks'
	most, done, waited      int     // tasks at a time; tasks that ended; ticks in which some waited for memory
	least                   int     // limit while memory lowered it
	why                     string
}

// run lets the world pass under a law.
func (w *world) run(law func(monitor.Sample) (target int, lowered bool, why string)) (out ran) {
	const dt, patience = 0.01, 5.0
	var running, waiting []*arrival
	var now clock
	var last []float64
	next, marking, marked, found, black := 0, false, 0.0, 0.0, 0.0
	used := w.beside(0)
	live, lim := used, float64(w.heap.Limit)
	if w.heap.Growth == 0 {
		live = 0
	}
	largest := 0.0
	w.knows = func() int {
		sum := 0.0
		largest *= 0.98
		for _, a := range running {
			sum, largest = sum+a.holds, max(largest, a.holds)
		}
		if largest == 0 {
			return 1 << 20
		}
		room := 0.72*w.unit - w.beside(now.at.Sub(epoch).Seconds()) - sum
		return max(1, len(running)+int(math.Floor(room/largest)))
	}
	target, _, _ := law(monitor.Sample{At: epoch})
	for at := 0.0; at < w.length; {
		s, sum, ended, times := quiet(), 0.0, 0, []float64(nil)
		s.Memory = w.heap
		for range 10 {
			before := w.beside(at)
			at += dt
			grown := max(w.beside(at)-before, 0)
			held, kept := 0.0, running[:0]
			for _, a := range running {
				if a.left -= dt; a.left <= 0 {
					ended, times, last = ended+1, append(times, a.took), append(last, a.took)
					continue
				}
				if kept = append(kept, a); a.gradual && a.has < a.holds {
					more := min(a.holds*dt/max(a.took, dt), a.holds-a.has)
					a.has += more
					grown += more
				}
				grown += a.garbage * dt / max(a.took, dt)
				held += a.has
			}
			running = kept
			for ; next < len(w.comes) && w.comes[next].at <= at; next++ {
				a := w.comes[next]
				waiting = append(waiting, &a)
			}
			for len(waiting) > 0 && (len(running) < target || waiting[0].at < at-patience) {
				a := waiting[0]
				if waiting = waiting[1:]; a.at < at-patience {
					continue
				}
				if a.left = a.took; !a.gradual {
					a.has = a.holds
					grown += a.has
				}
				running, held = append(running, a), held+a.has
			}
			sum += float64(len(running))
			out.most = max(out.most, len(running))
			reachable := w.beside(at) + held
			out.heaviest, out.tasks = max(out.heaviest, reachable), max(out.tasks, held)
			s.Memory.Allocated += uint64(grown)
			if used += grown; used > w.kill {
				out.killed = at
				return out
			}
			goal := math.Inf(1)
			if w.heap.Growth > 0 {
				goal = max(4e6, live*(1+w.heap.Growth))
			}
			if w.heap.Soft {
				goal = min(goal, lim)
			}
			if black += grown; marking {
				if marked -= dt; marked <= 0 {
					live, marking = found+black, false // what was new survives, as does what was reachable when it began
					used, out.heaviest = live, max(out.heaviest, live)
					s.Memory.Collections++
				}
			} else if used >= live+0.9*max(goal-live, 0) {
				marking, marked, found, black = true, w.mark*reachable/w.unit, reachable, 0
			}
		}
		out.done += ended
		s.Memory.Live = uint64(live)
		s.Service = executed(0, 0, sum/10)
		s.Service.Running, s.Service.Count, s.Service.Throughput = len(running), uint64(ended), float64(ended)*10
		slices.Sort(times)
		for i := range min(len(times), len(s.Service.Times)) {
			s.Service.Times[i] = time.Duration(times[i*len(times)/min(len(times), len(s.Service.Times))] * 1e9)
		}
		if ended > 0 {
			s.Service.P50 = time.Duration(times[len(times)/2] * 1e9)
			s.Service.P90 = time.Duration(times[len(times)*9/10] * 1e9)
		}
		if last = last[max(0, len(last)-64):]; len(last) > 0 && len(running) > 0 {
			sorted, age := slices.Sorted(slices.Values(last)), 0.0
			for _, a := range running {
				age = max(age, a.took-a.left)
			}
			if age > 1 && age > 8*sorted[len(sorted)*9/10] {
				s.Service.LongFor = time.Duration(age * 1e9)
			}
		}
		var lowered bool
		var why string
		if target, lowered, why = law(now.next(s)); lowered {
			if out.least == 0 || target < out.least {
				out.least, out.why = target, fmt.Sprintf("%.1f s: %s; %.0f run, %.2f live, %.2f used", at, why, float64(len(running)), live/w.unit, used/w.unit)
			}
			if len(waiting) > 0 && len(running) >= target {
				out.waited++
			}
		}
	}
	return out
}

// told is a law to which each collection tells what everything holds.
func (w *world) told() func(s monitor.Sample) (int, bool, string) {
	target := 16
	return func(s monitor.Sample) (int, bool, string) {
		if s.Memory.Collections > 0 {
			target = w.knows()
		}
		return target, false, ""
	}
}

func constant(target int) func(monitor.Sample) (int, bool, string) {
	return func(monitor.Sample) (int, bool, string) { return target, false, "" }
}

// judge lets a world pass under ours.
func (w *world) judge(t *testing.T) (ours ran, reasons string) {
	c := mustNew(t, control.Config{Processors: 1})
	return w.run(func(s monitor.Sample) (int, bool, string) {
		d := c.Step(s)
		reasons = fmt.Sprint(d.Reasons)
		return d.TargetConcurrency, lowersForMemory(d), reasons
	}), reasons
}

// C19: nothing is killed that some constant limit keeps alive, unless a law would also fail to which each collection tells what
// every task holds; and nobody waits for memory where nobody has to. What nothing could have told apart in time is left: one in
// twenty.
func TestMemoryWorlds(t *testing.T) {
	from := *memoryFrom
	if from == 0 {
		from = uint64(time.Now().UnixNano()) % 1e9
	}
	var killable, killed, healthy, lowered, overload int
	share := 0.0
	for seed := from; seed < from+uint64(*memoryWorlds); seed++ {
		w := newWorld(seed)
		open := w.run(constant(1 << 20))
		ours, _ := w.judge(t)
		best, survives := 0, 0
		for _, n := range []int{1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200} {
			if open.killed == 0 {
				break
			}
			if r := w.run(constant(n)); r.killed == 0 {
				survives, best = n, max(best, r.done)
			}
		}
		switch {
		case survives > 0 && (ours.killed == 0 || w.run(w.told()).killed == 0):
			killable++
			if ours.killed > 0 {
				killed++
				t.Logf("seed %d, %s: killed after %.1f s, where a limit of %d survives; %+v, kill %.2f: %s", seed, w.about, ours.killed,
					survives, w.heap, w.kill/w.unit, ours.why)
			} else {
				overload++
				share += float64(ours.done) / float64(best)
			}
		case open.killed == 0 && (open.heaviest < 0.58*w.unit || open.tasks < 0.03*w.unit):
			healthy++
			if ours.waited > 0 && ours.least < open.most {
				lowered++
				t.Logf("seed %d, %s: %d samples with tasks that wait for memory, limit %d where %d would run, %.2f held, %.3f by tasks; %+v: %s",
					seed, w.about, ours.waited, ours.least, open.most, open.heaviest/w.unit, open.tasks/w.unit, w.heap, ours.why)
			}
		}
	}
	said := fmt.Sprintf("C19: -memory-from %d: killed %d of %d, lowered %d of %d; %.2f of the best constant limit's work", from, killed,
		killable, lowered, healthy, share/float64(max(overload, 1)))
	if t.Log(said); killed > 2+killable/20 || lowered > 2+healthy/20 {
		t.Error(said)
	}
}

// C19: 126 MB of cache in 160 MiB lower nothing, and are named.
func TestMemoryCache(t *testing.T) {
	for seed := range uint64(20) {
		w := &world{heap: monitor.Memory{Limit: 160 << 20, Soft: true, Growth: 1}, unit: 160 << 20, kill: 320 << 20, mark: 0.1, base: 0.02,
			cache: 0.75, at: 5, filling: 30, length: 120, kinds: []kind{{until: 120, rate: 60, took: 0.04, holds: 1e-5, garbage: 3e-4}}}
		w.arrive(rand.New(rand.NewPCG(seed, 1)))
		ours, reasons := w.judge(t)
		if ours.killed > 0 || ours.why != "" || !regexp.MustCompile(`memory_near: .* in use, 12\d MB or more by something else`).MatchString(reasons) {
			t.Fatalf("C19: seed %d: killed %.1f, lowered to %d: %s; at the end %s", seed, ours.killed, ours.least, ours.why, reasons)
		}
	}
}

// C19: tasks of 20 MB after those of 100 kB, in 256 MiB.
func TestMemoryCheapThenLarge(t *testing.T) {
	for seed := range uint64(20) {
		w := &world{heap: monitor.Memory{Limit: 256 << 20, Soft: true, Growth: 1}, unit: 256 << 20, kill: 512 << 20, mark: 0.1, base: 0.01,
			length: 60, kinds: []kind{{until: 40, rate: 100, took: 0.2, holds: 4e-4}, {from: 40, until: 60, rate: 24, took: 2, holds: 0.075}}}
		w.arrive(rand.New(rand.NewPCG(seed, 1)))
		if ours, reasons := w.judge(t); ours.killed > 0 || ours.done < 3900 {
			t.Fatalf("C19: seed %d: killed %.1f, %d done: %s", seed, ours.killed, ours.done, reasons)
		}
	}
}

// The scenarios: services, their load, and the events that disturb them.

package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

const ms = time.Millisecond

// median draws work around these medians, with a deviation of 20 %.
func median(cpu, io time.Duration) func(time.Duration, *rand.Rand) Work {
	return func(_ time.Duration, r *rand.Rand) Work { return Work{lognormal(r, cpu), lognormal(r, io)} }
}

// mean is the mean of lognormal divided by its median.
const mean = 1.0202

// perCPU is the requests per second that this many processors can serve.
func perCPU(cores int, cost time.Duration) float64 {
	return float64(cores) / (cost.Seconds()*mean + arrival.Seconds())
}

// perServer is the calls per second that this many servers can serve.
func perServer(servers int, io time.Duration) float64 {
	return float64(servers) / (io.Seconds() * mean)
}

// bound is a CPU-bound service.
func bound(cores int, cost time.Duration, load float64) Scenario {
	return Scenario{
		Name: fmt.Sprintf("CPU %v, %g×", cost, load), Cores: cores,
		Work: median(cost, 0), Capacity: constant(perCPU(cores, cost)), Load: constant(load),
		Warm: 3 * time.Second, Length: 13 * time.Second, Steady: true,
		Static: []int{cores + (cores+3)/4, 2 * cores},
	}
}

// downstream is a service that waits for a dependency with this many servers, 40 ms per call.
func downstream(cores, servers int, load float64) Scenario {
	return Scenario{
		Name: fmt.Sprintf("%d servers of 40ms, %g×", servers, load), Cores: cores, Servers: servers,
		Work: median(200*time.Microsecond, 40*ms), Capacity: constant(perServer(servers, 40*ms)), Load: constant(load),
		Warm: 5 * time.Second, Length: 40 * time.Second, Steady: true,
		Static: []int{servers, servers + (servers+9)/10, servers + (servers+3)/4},
	}
}

// mixed is a service that computes for 4 ms and waits 20 ms for a dependency without a limit.
func mixed(cores int, load float64) Scenario {
	sc := bound(cores, 4*ms, load)
	sc.Name = fmt.Sprintf("CPU 4ms and I/O 20ms, %g×", load)
	sc.Work = median(4*ms, 20*ms)
	sc.Static = []int{7 * cores, 8 * cores, 10 * cores}
	return sc
}

func named(name string, sc Scenario, change func(sc *Scenario)) Scenario {
	change(&sc)
	sc.Name = name
	return sc
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// phase counts periods of this length: 0, 1, ….
func phase(at, length time.Duration) int { return int(at / length) }

// Scenarios are all scenarios.
func Scenarios() []Scenario {
	var all []Scenario
	for _, load := range []float64{0.7, 1, 1.5, 2, 4, 10} {
		all = append(all, bound(2, 4*ms, load))
	}
	for _, load := range []float64{0.7, 4} {
		all = append(all, bound(2, 1*ms, load), bound(2, 16*ms, load), bound(8, 4*ms, load), bound(64, 16*ms, load), bound(128, 16*ms, load))
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
	large.Length = 15 * time.Second
	all = append(all, large)

	slow := func(load float64, deadline time.Duration) Scenario {
		return named(fmt.Sprintf("10 servers, 5 times slower 20-40s, %g×, %v", load, deadline), downstream(2, 10, load), func(sc *Scenario) {
			sc.Length, sc.Steady, sc.Deadline = 60*time.Second, false, deadline
			quick, crawl := perServer(10, 40*ms), perServer(10, 200*ms)
			sc.Capacity = func(at time.Duration) float64 {
				if at >= seconds(20) && at < seconds(40) {
					return crawl
				}
				return quick
			}
			// Users do not react: the offered load stays the same.
			sc.Load = func(at time.Duration) float64 { return load * quick / sc.Capacity(at) }
			sc.Events = []Event{{seconds(20), func(w *World) { w.dep.slowBy(5) }}, {seconds(40), func(w *World) { w.dep.slowBy(1) }}}
		})
	}
	all = append(all,
		slow(0.7, 250*ms), slow(2, 250*ms), slow(2, 500*ms),
		named("step 0.6× 5× 0.6×, CPU 4ms", bound(2, 4*ms, 1), func(sc *Scenario) {
			sc.Steady, sc.Length = false, 20*time.Second
			sc.Load = func(at time.Duration) float64 { return []float64{0.6, 5, 0.6, 0.6}[min(phase(at, seconds(7)), 3)] }
		}),
		named("sawtooth 0.5× to 4×, CPU 4ms", bound(8, 4*ms, 1), func(sc *Scenario) {
			sc.Steady, sc.Length = false, 20*time.Second
			sc.Load = func(at time.Duration) float64 {
				return 0.5 + 3.5*float64(at%(4*time.Second))/float64(4*time.Second)
			}
		}),
		named("CPU 4ms / I/O 100ms in turn, 2×", bound(2, 4*ms, 2), func(sc *Scenario) {
			// Every 10 s the requests change between CPU-bound work and waits of 100 ms with 1 ms of computing.
			sc.Steady, sc.Length = false, 43*time.Second
			sc.Work = func(at time.Duration, r *rand.Rand) Work {
				if phase(at, seconds(10))%2 == 0 {
					return median(4*ms, 0)(at, r)
				}
				return median(1*ms, 100*ms)(at, r)
			}
			sc.Capacity = func(at time.Duration) float64 {
				if phase(at, seconds(10))%2 == 0 {
					return perCPU(2, 4*ms)
				}
				return perCPU(2, 1*ms)
			}
			sc.Static = []int{8, 16, 32, 64, 128, 256}
		}),
		named("heavy tails (Pareto 1.5), CPU 4ms, 2×", bound(8, 4*ms, 2), func(sc *Scenario) {
			sc.Length = 20 * time.Second
			sc.Work = func(_ time.Duration, r *rand.Rand) Work {
				return Work{CPU: min(time.Duration(pareto(r, 1.5)*float64(4*ms)/3), 500*ms)}
			}
			sc.Capacity = constant(perMean(8, sc.Work))
		}),
		named("heavy tails (Pareto 1.5), 10 servers, 2×", downstream(2, 10, 2), func(sc *Scenario) {
			sc.Work = func(_ time.Duration, r *rand.Rand) Work {
				return Work{CPU: 200 * time.Microsecond, IO: min(time.Duration(pareto(r, 1.5)*float64(40*ms)/3), 500*ms)}
			}
			sc.Capacity = constant(perMeanServer(10, sc.Work))
		}),
		named("pause of 40ms every 2s, CPU 4ms, 0.7×", bound(8, 4*ms, 0.7), pauses),
		named("pause of 40ms every 2s, CPU 4ms, 4×", bound(8, 4*ms, 4), pauses),
		named("no samples 5-9s, CPU 4ms, 0.7× to 4× at 6s", bound(2, 4*ms, 1), func(sc *Scenario) {
			sc.Steady, sc.Length = false, 15*time.Second
			sc.Blind = func(at time.Duration) bool { return at > seconds(5) && at < seconds(9) }
			sc.Load = func(at time.Duration) float64 {
				if at < seconds(6) {
					return 0.7
				}
				return 4
			}
		}),
		named("GOMAXPROCS 8, 2 at 8s, 8 at 16s, CPU 4ms, 2×", bound(8, 4*ms, 2), func(sc *Scenario) {
			sc.Steady, sc.Length = false, 24*time.Second
			sc.Capacity = func(at time.Duration) float64 {
				return perCPU([]int{8, 2, 8, 8}[min(phase(at, seconds(8)), 3)], 4*ms)
			}
			sc.Events = []Event{{seconds(8), func(w *World) { w.cpu.resize(2) }}, {seconds(16), func(w *World) { w.cpu.resize(8) }}}
		}),
		named("mix: 40ms, 160ms from 15s, room for all, 100/s", downstream(2, 0, 1), func(sc *Scenario) {
			// Nothing is ever overloaded here: a controller that confuses slower work with waiting would lose throughput.
			sc.Steady = false
			sc.Work = func(at time.Duration, r *rand.Rand) Work {
				if at < seconds(15) {
					return median(200*time.Microsecond, 40*ms)(at, r)
				}
				return median(200*time.Microsecond, 160*ms)(at, r)
			}
			sc.Capacity = constant(100)
			sc.Static = []int{100}
		}),
	)
	return all
}

func pauses(sc *Scenario) {
	for at := seconds(1); at < sc.Length; at += 2 * time.Second {
		sc.Events = append(sc.Events, Event{at, func(w *World) { w.cpu.freeze(40 * ms) }})
	}
}

// pareto draws from a Pareto distribution with this exponent and minimum 1.
func pareto(r *rand.Rand, exponent float64) float64 { return math.Pow(1-r.Float64(), -1/exponent) }

func average(work func(time.Duration, *rand.Rand) Work) (sum Work) {
	r := rand.New(rand.NewPCG(1, 1))
	const n = 100_000
	for range n {
		w := work(0, r)
		sum.CPU += w.CPU
		sum.IO += w.IO
	}
	return Work{sum.CPU / n, sum.IO / n}
}

func perMean(cores int, work func(time.Duration, *rand.Rand) Work) float64 {
	return float64(cores) / (average(work).CPU + arrival).Seconds()
}

func perMeanServer(servers int, work func(time.Duration, *rand.Rand) Work) float64 {
	return float64(servers) / average(work).IO.Seconds()
}

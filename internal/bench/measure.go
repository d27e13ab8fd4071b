// Measuring a row: the variants take turns in each round and are compared within the round.

package main

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/perf/benchmath"
)

// A row compares one operation of Stopbank with its peers.
type row struct {
	layer, title string
	parallel     bool    // run by GOMAXPROCS goroutines on one shared instance
	ours         variant // numerator of the ratios
	peers        []peer
}

// wholes are the rows, by title, that measure themselves because their work cannot be divided into operations.
var wholes = map[string]func() []cell{}

// A variant is one implementation of the row's operation. New returns a fresh instance as a loop that performs the operation n
// times; in parallel rows several goroutines call it at the same time.
type variant struct {
	name string
	new  func() (loop func(n int))
}

// A peer is a variant in the denominator of a ratio. Most is the highest ratio that meets the target; 0: no target, for
// information only.
type peer struct {
	variant
	most float64
}

// A result is a measured row: time and allocations of each variant, ours first, and our ratio to it.
type result struct {
	row
	cells []cell
}

type cell struct {
	name      string
	ns        float64 // median per operation; with p goroutines, wall time divided by all operations
	allocs    float64 // median per operation
	ratio     float64 // ours / this: median of the rounds' ratios
	low, high float64 // 95 % interval of ratio
	most      float64 // target of ratio; 0: none
}

// shares divides every number of operations: the highest number of goroutines that share them. A fractional share would run more
// operations than are counted. On two cores each goroutine gets at least eight, so that waiting for the last one costs little.
const shares = 16

// measure runs all variants of r in each round, on new instances: their addresses and the sharing of cache lines must not decide a
// row.
func measure(r row, rounds int, slice time.Duration) result {
	if whole := wholes[r.title]; whole != nil {
		return result{row: r, cells: whole()}
	}
	all := []variant{r.ours}
	for _, p := range r.peers {
		all = append(all, p.variant)
	}
	n := make([]int, len(all))
	for i, v := range all {
		n[i] = max(8, (calibrate(v.new(), r.parallel, slice)+shares-1)/shares) * shares
	}
	times, allocs := make([][]float64, len(all)), make([][]float64, len(all))
	for round := range rounds {
		for k := range all {
			i := (k + round) % len(all)
			loop := all[i].new()
			run(loop, r.parallel, max(1, n[i]/10)) // warm up caches, pools and branch predictors
			ns, objects := run(loop, r.parallel, n[i])
			times[i], allocs[i] = append(times[i], ns), append(allocs[i], objects)
		}
	}
	res := result{row: r}
	for i, v := range all {
		ratios := make([]float64, rounds)
		for k := range rounds {
			ratios[k] = times[0][k] / times[i][k]
		}
		ratio := summary(ratios)
		c := cell{name: v.name, ns: summary(times[i]).Center, allocs: summary(allocs[i]).Center,
			ratio: ratio.Center, low: ratio.Lo, high: ratio.Hi}
		if i > 0 {
			c.most = r.peers[i-1].most
		}
		res.cells = append(res.cells, c)
	}
	return res
}

func summary(values []float64) benchmath.Summary {
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), 0.95)
}

// calibrate returns the number of operations that take about slice.
func calibrate(loop func(int), parallel bool, slice time.Duration) int {
	run(loop, parallel, 64) // excludes one-time costs, such as opening connections
	for n := 64; ; n *= 4 {
		if ns, _ := run(loop, parallel, n); ns*float64(n) > float64(slice)/8 {
			return max(1, int(math.Ceil(float64(slice)/ns)))
		}
	}
}

// run performs n operations, by GOMAXPROCS goroutines if parallel, and returns nanoseconds and allocations per operation. The
// clock starts when all goroutines are running: until then the others would have the instance to themselves, which would hide
// the cost of sharing.
func run(loop func(int), parallel bool, n int) (ns, objects float64) {
	workers := 1
	if parallel {
		workers = runtime.GOMAXPROCS(0)
	}
	each := (n + workers - 1) / workers
	var running atomic.Int32
	var begin atomic.Bool
	var others sync.WaitGroup
	for range workers - 1 {
		others.Go(func() {
			running.Add(1)
			spin(begin.Load)
			loop(each)
		})
	}
	spin(func() bool { return int(running.Load()) == workers-1 })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	begin.Store(true)
	loop(each)
	others.Wait()
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	total := float64(each * workers)
	return float64(took.Nanoseconds()) / total, float64(after.Mallocs-before.Mallocs) / total
}

// spin keeps its processor busy until done.
func spin(done func() bool) {
	for {
		if done() {
			return
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

// Measuring a row: the variants take turns in each round and are compared within the round.

package main

import (
	"slices"
	"sync"
	"testing"

	"golang.org/x/perf/benchmath"
)

// A row compares Stopbank, its first variant, with peers.
type row struct {
	layer, title string
	goroutines   int // that share one instance
	variants     []variant
	whole        func() (ns []float64) // measures a run of all variants whose work cannot be divided into operations
	note         func() string         // what else was measured of the last run; nil: nothing
}

// A variant is one implementation of the row's operation.
type variant struct {
	name string
	most float64 // highest ratio of ours to this that meets the target; 0: no target, for information only
	new  func() instance
}

// An instance returns its operation, once for each goroutine that performs it.
type instance func() (operation func())

// shared is an instance whose operation is the same for all goroutines. Calling it takes a nanosecond or two, in every variant.
func shared(operation func()) instance { return func() func() { return operation } }

// A result is a measured row.
type result struct {
	row
	cells []cell
}

type cell struct {
	name      string
	ns        float64 // median per operation; with p goroutines, wall time divided by all operations
	allocs    float64 // median per operation
	ratio     float64 // ours / this: median of the rounds' ratios
	low, high float64 // 95 % interval of ratio; of few rounds their range
	most      float64 // target of ratio; 0: none
}

func (r row) measure() result {
	rounds := 41
	if r.whole != nil {
		rounds = 3 // a run over thousands of records is an average by itself
	}
	times, allocs := make([][]float64, len(r.variants)), make([][]float64, len(r.variants))
	for round := range rounds {
		one := func(i int) (ns, objects float64) { return r.variants[i].run(r.goroutines) }
		if r.whole != nil {
			all := r.whole()
			one = func(i int) (ns, objects float64) { return all[i], 0 }
		}
		for k := range r.variants {
			i := (k + round) % len(r.variants)
			ns, objects := one(i)
			times[i], allocs[i] = append(times[i], ns), append(allocs[i], objects)
		}
	}
	res := result{row: row{layer: r.layer, title: r.title, goroutines: r.goroutines, whole: r.whole, note: r.note}}
	for i, v := range r.variants {
		ratios := make([]float64, rounds)
		for k := range ratios {
			ratios[k] = times[0][k] / times[i][k]
		}
		ratio := summary(ratios)
		if r.whole != nil { // three rounds have no interval of 95 %
			ratio.Lo, ratio.Hi = slices.Min(ratios), slices.Max(ratios)
		}
		res.cells = append(res.cells, cell{v.name, summary(times[i]).Center, summary(allocs[i]).Center, ratio.Center, ratio.Lo,
			ratio.Hi, v.most})
	}
	return res
}

func summary(values []float64) benchmath.Summary {
	sorted := slices.Clone(values) // NewSample sorts, and the rounds must stay in their order
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(sorted, &benchmath.DefaultThresholds), 0.95)
}

// run measures nanoseconds and allocations per operation, on a new instance: addresses and the sharing of cache lines must not
// decide a row.
func (v variant) run(goroutines int) (ns, objects float64) {
	var operations float64
	res := testing.Benchmark(func(b *testing.B) {
		start, all := v.new(), make([]func(), goroutines)
		for i := range all {
			all[i] = start()
			for range 64 { // caches, pools, connections
				all[i]()
			}
		}
		each := (b.N + goroutines - 1) / goroutines
		operations = float64(each * goroutines)
		b.ResetTimer()
		var group sync.WaitGroup
		for _, operation := range all {
			group.Go(func() {
				for range each {
					operation()
				}
			})
		}
		group.Wait()
	})
	return float64(res.T) / operations, float64(res.MemAllocs) / operations
}

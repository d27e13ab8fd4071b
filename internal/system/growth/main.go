// SPDX-License-Identifier: Apache-2.0

// Growth checks that what a page or docstring promises about a cost is true at any size: that its time does not grow, or that it
// allocates nothing.
//
// Each operation of costs.go is measured with 10, 1,000 and 100,000 of what its cost must not depend on: the least processor time
// of nine runs, which take turns, so that a busy machine disturbs all sizes alike. The growth between two sizes is the exponent e
// of time = size^e, and has to be below .3: a logarithm and the processor's caches stay below it, a walk is near 1.
//
// Usage, at the root: go run ./internal/system/growth [WORDS OF A LINE]
package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	rounds = 9
	most   = 0.3                   // exponent
	enough = 10 * time.Millisecond // of processor time, for one run
)

var sizes = [...]int{10, 1_000, 100_000}

// A cost is what a page or docstring promises.
type cost struct {
	where, what string
	promises    promise
	// with makes n of what the cost must not depend on, until ctx is done, and returns one operation.
	with func(ctx context.Context, n int) (operation func())
}

type promise uint8

const (
	constant promise = 1 << iota // its time does not grow, or as a logarithm does
	free                         // it allocates nothing
)

func main() {
	failed := 0
	for _, c := range costs() {
		name := c.where + ": " + c.what
		if !strings.Contains(name, strings.Join(os.Args[1:], " ")) {
			continue
		}
		says, kept := c.check()
		result := "ok"
		if !kept {
			result = "FAILED"
			failed++
		}
		fmt.Printf("%-6s %s: %s\n", result, name, says)
	}
	if failed > 0 {
		fmt.Printf("%d promises about costs do not hold\n", failed)
		os.Exit(1)
	}
}

// check says what was measured, and whether the promise is kept.
func (c cost) check() (says string, kept bool) {
	goroutines := runtime.NumGoroutine()
	ctx, end := context.WithCancel(context.Background())
	defer until(func() bool { return runtime.NumGoroutine() <= goroutines })
	defer end()
	var operations [len(sizes)]func()
	for i, n := range sizes {
		operations[i] = c.with(ctx, n)
	}
	var said []string
	kept = true
	if c.promises&constant != 0 {
		took := measure(operations)
		said = append(said, took[0].String())
		for i := 1; i < len(sizes); i++ {
			e := math.Log(float64(took[i])/float64(took[i-1])) / math.Log(float64(sizes[i])/float64(sizes[i-1]))
			said = append(said, fmt.Sprintf("%v (^%.2f)", took[i], e))
			kept = kept && e < most
		}
	}
	if c.promises&free != 0 {
		allocations := 0.0
		for _, operation := range operations {
			allocations = max(allocations, testing.AllocsPerRun(100, operation))
		}
		said = append(said, fmt.Sprintf("%g allocations", allocations))
		kept = kept && allocations == 0
	}
	return strings.Join(said, ", "), kept
}

// measure returns the least processor time of each operation. The collector runs between the runs and not in them: its time
// depends on what else is in memory.
func measure(operations [len(sizes)]func()) (least [len(sizes)]time.Duration) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var times [len(sizes)]int
	for i, operation := range operations {
		times[i], least[i] = 1, math.MaxInt64
		for run(operation, times[i]) < enough {
			times[i] *= 2
		}
	}
	for range rounds {
		for i, operation := range operations {
			runtime.GC()
			least[i] = min(least[i], run(operation, times[i])/time.Duration(times[i]))
		}
	}
	return least
}

// run returns the processor time of that many operations.
func run(operation func(), times int) time.Duration {
	before := processor()
	for range times {
		operation()
	}
	return processor() - before
}

// processor returns the processor time of this process.
func processor() time.Duration {
	var u syscall.Rusage
	must(0, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func until(condition func() bool) {
	for !condition() {
		time.Sleep(time.Millisecond)
	}
}

// must returns v, and panics on an error: what is measured does not fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

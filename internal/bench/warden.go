// SPDX-License-Identifier: Apache-2.0

// Benchmark rows of the warden: limiter, compartments and HTTP middleware beside their peers, and the cost of sampling.

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	failsafebulkhead "github.com/failsafe-go/failsafe-go/bulkhead"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

var (
	ctx    = context.Background()
	answer = func(context.Context) (int, error) { return 0, nil }
)

func wardenRows() []row {
	var onLimiter, inCompartment []row
	for _, goroutines := range sharings() {
		overSemaphore, overAdaptive := 4.0, 0.0
		if goroutines > 1 { // most of the cost is contention for a mutex, in both
			overSemaphore, overAdaptive = 0, 0.5
		}
		onLimiter = append(onLimiter,
			row{layer: "warden", title: "Acquire + Release, nobody waits", goroutines: goroutines, variants: []variant{
				{"limiter Acquire + Release", 0, func() instance {
					l := target(places)
					return shared(func() {
						p, _ := l.Acquire(ctx, limiter.Task{})
						p.Release()
					})
				}},
				semaphorePair(overSemaphore),
				{"failsafe-go limiter", overAdaptive, func() instance {
					l := adaptive(places)
					return shared(func() {
						if p, err := l.AcquirePermit(ctx); err == nil {
							p.Record()
						}
					})
				}},
				{"warden.Do", 0, func() instance {
					w := newWarden()
					return shared(func() { _, _ = warden.Do(ctx, w, warden.Task{}, answer) })
				}},
			}},
			row{layer: "warden", title: "refusal, explained", goroutines: goroutines, variants: []variant{
				{"limiter TryAcquire", 0, func() instance {
					l := target(1)
					must(l.TryAcquire(limiter.Task{}))
					return shared(func() { _, _ = l.TryAcquire(limiter.Task{}) })
				}},
				{"failsafe-go, a bare false", 0, func() instance {
					l := adaptive(1)
					_, _ = l.TryAcquirePermit()
					return shared(func() { _, _ = l.TryAcquirePermit() })
				}},
			}},
		)
		inCompartment = append(inCompartment, row{layer: "bulkhead", title: "Do in a healthy compartment", goroutines: goroutines,
			variants: []variant{
				{"bulkhead.Do", 0, func() instance {
					k := must(bulkhead.New(bulkhead.Config{Total: places, Compartments: []bulkhead.CompartmentConfig{{Name: "a",
						Guaranteed: places}}})).Compartment("a")
					return shared(func() { _, _ = bulkhead.Do(ctx, k, answer) })
				}},
				{"limiter.Do", 2, func() instance {
					l := target(places)
					return shared(func() { _, _ = limiter.Do(ctx, l, limiter.Task{}, answer) })
				}},
				{"failsafe-go bulkhead", 0, func() instance {
					e := failsafe.With[int](failsafebulkhead.New[int](places))
					return shared(func() { _, _ = e.Get(func() (int, error) { return 0, nil }) })
				}},
			}})
	}
	// target 5 µs: a time, in the docs
	onLimiter = append(onLimiter, row{layer: "warden", title: "monitor.Sample", goroutines: 1, variants: []variant{
		{"monitor.Sample", 0, func() instance {
			s := must(monitor.New())
			return shared(func() { _ = s.Sample() })
		}},
	}})
	bare := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	governed := must(wardenhttp.New(newWarden(), wardenhttp.Config{})).Handler(bare)
	return append(append(onLimiter, inCompartment...), threadsRow(),
		row{layer: "warden/wardenhttp", title: "HTTP request over loopback", goroutines: 1, variants: []variant{
			get("under wardenhttp", 0, governed), get("bare handler", 1.1, bare),
		}})
}

// threadsRow is the median time of a hundred samples, one every 100 ms, beside threads that block in the kernel: some sources are read
// only once a second.
func threadsRow() row {
	worst, most := make([]time.Duration, 3), make([]uint64, 3)
	return row{layer: "warden", title: "a sample every 100 ms beside 20 threads", variants: []variant{{}, {name: "200 threads"}, {name: "2000 threads"}},
		whole: func() (ns []float64) {
			for i, threads := range []int{20, 200, 2000} {
				var pipe [2]int
				must(0, syscall.Pipe(pipe[:]))
				for range threads {
					go func() {
						runtime.LockOSThread() // until it ends, and with it the thread
						_, _ = syscall.Read(pipe[0], make([]byte, 1))
					}()
				}
				time.Sleep(3 * time.Second)
				s, took := must(monitor.New()), []time.Duration{}
				var before, after runtime.MemStats
				for n := range 101 {
					time.Sleep(100 * time.Millisecond)
					runtime.ReadMemStats(&before)
					began := time.Now()
					s.Sample()
					spent := time.Since(began)
					if runtime.ReadMemStats(&after); n > 0 { // the first opens what the others read
						took, most[i] = append(took, spent), max(most[i], after.Mallocs-before.Mallocs)
					}
				}
				slices.Sort(took)
				ns, worst[i] = append(ns, float64(took[len(took)/2])), took[len(took)-1]
				must(0, syscall.Close(pipe[1]))
				must(0, syscall.Close(pipe[0]))
			}
			return ns
		}, note: func() string { return fmt.Sprintf("worst %v; allocations of one at most %v", worst, most) }}
}

// newWarden returns a warden that never rejects here.
func newWarden() *warden.Warden { return must(warden.New(warden.Config{Interval: 10 * time.Second})) }

// target returns a limiter with a constant concurrency limit, no queue and no yields.
func target(n int) *limiter.Limiter {
	return must(limiter.New(limiter.Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: n}}))
}

// adaptive is the peer, with a limit that the rows do not reach.
func adaptive(limit uint) adaptivelimiter.AdaptiveLimiter[any] {
	return adaptivelimiter.NewBuilder[any]().WithLimits(limit, limit, limit).Build()
}

// get requests h over loopback, from one server for all rounds.
func get(name string, most float64, h http.Handler) variant {
	return variant{name, most, sync.OnceValue(func() instance {
		l := must(net.Listen("tcp", "127.0.0.1:0"))
		go func() { _ = http.Serve(l, h) }()
		return shared(func() {
			resp, err := http.Get("http://" + l.Addr().String())
			if err != nil {
				exit("%v", err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
				exit("%s", resp.Status)
			}
		})
	})}
}

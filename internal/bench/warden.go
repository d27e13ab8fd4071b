// The rows of the warden: the limiter beside its peers, and what measuring and judging cost.

package main

import (
	"context"
	"runtime/metrics"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

func wardenRows() []row {
	var rows []row
	for _, parallel := range []bool{false, true} {
		rows = append(rows, runRow(parallel), dropRow(parallel))
	}
	return append(rows, sampleRow())
}

// target makes a limiter with this many places, no queue and no yields.
func target(n int) *limiter.Limiter {
	l, err := limiter.New(limiter.Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: n}})
	if err != nil {
		exit("%v", err)
	}
	return l
}

// adaptive is the peer with a limit that the rows do not reach.
func adaptive(limit uint) adaptivelimiter.AdaptiveLimiter[any] {
	return adaptivelimiter.NewBuilder[any]().WithLimits(limit, limit, limit).Build()
}

// runRow: a task that runs at once.
func runRow(parallel bool) row {
	ctx := context.Background()
	overSemaphore, overAdaptive := 4.0, 0.0
	if parallel { // where a mutex that many want is the cost of both
		overSemaphore, overAdaptive = 0, 0.5
	}
	return row{"warden", "Acquire + Release, nobody waits", parallel,
		variant{"limiter Acquire + Release", func() func(int) {
			l := target(places)
			return func(n int) {
				for range n {
					p, _ := l.Acquire(ctx, limiter.Task{})
					p.Release()
				}
			}
		}},
		[]peer{
			{semaphoreLoop(places), overSemaphore},
			{variant{"failsafe-go adaptive limiter permit", func() func(int) {
				l := adaptive(places)
				return func(n int) {
					for range n {
						if p, err := l.AcquirePermit(ctx); err == nil {
							p.Record()
						}
					}
				}
			}}, overAdaptive},
			{variant{"warden.Do, which also times the task", func() func(int) {
				w, err := warden.New(warden.Config{Interval: 10 * time.Second})
				if err != nil {
					exit("%v", err)
				}
				fn := func(context.Context) (int, error) { return 0, nil }
				return func(n int) {
					for range n {
						_, _ = warden.Do(ctx, w, warden.Task{}, fn)
					}
				}
			}}, 0},
		},
	}
}

// dropRow: a task that may not wait, at the target.
func dropRow(parallel bool) row {
	return row{"warden", "refusal, explained", parallel,
		variant{"limiter TryAcquire", func() func(int) {
			l := target(1)
			if _, err := l.TryAcquire(limiter.Task{}); err != nil {
				exit("%v", err)
			}
			return func(n int) {
				for range n {
					_, _ = l.TryAcquire(limiter.Task{})
				}
			}
		}},
		[]peer{
			{variant{"failsafe-go adaptive limiter, a bare false", func() func(int) {
				l := adaptive(1)
				if _, ok := l.TryAcquirePermit(); !ok {
					exit("no permit")
				}
				return func(n int) {
					for range n {
						_, _ = l.TryAcquirePermit()
					}
				}
			}}, 0},
			{variant{"time.Now", func() func(int) {
				return func(n int) {
					for range n {
						_ = time.Now()
					}
				}
			}}, 0},
		},
	}
}

// sampleRow: one look at everything that is measured. The target, 5 µs, is a time and stands in the docs.
func sampleRow() row {
	return row{"warden", "monitor.Sample", false,
		variant{"monitor.Sample", func() func(int) {
			s, err := monitor.New(monitor.Config{Recorder: monitor.NewRecorder()})
			if err != nil {
				exit("%v", err)
			}
			return func(n int) {
				for range n {
					_ = s.Sample()
				}
			}
		}},
		[]peer{{variant{"metrics.Read of the two metrics in it", func() func(int) {
			read := []metrics.Sample{{Name: "/sched/latencies:seconds"}, {Name: "/sched/goroutines/runnable:goroutines"}}
			return func(n int) {
				for range n {
					metrics.Read(read)
				}
			}
		}}, 0}},
	}
}

// SPDX-License-Identifier: Apache-2.0

//go:build !race

// What is allocated: nothing without waiting, one thing for a rejection.

package limiter

import (
	"context"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

func TestAllocations(t *testing.T) {
	ctx := context.Background()
	later, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	open := mustNew(t, Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 2, Yields: 2}})
	full := mustNew(t, Config{Initial: fixed(0)})
	shed := mustNew(t, Config{MaxQueue: 1, Initial: decision.ControlDecision{Seq: 1, ShedProbability: 1}})
	watched := mustNew(t, Config{Observer: Observers{silent{}, silent{}}})
	fn := func(context.Context) (int, error) { return 1, nil }
	use := func(p Permit, err error) {
		if p.Release() != (err == nil) {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		name string
		most float64
		run  func()
	}{
		{"TryAcquire", 0, func() { use(open.TryAcquire(Task{})) }},
		{"Acquire", 0, func() { use(open.Acquire(ctx, Task{})) }},
		{"Acquire with a deadline", 0, func() { use(open.Acquire(later, Task{})) }},
		{"Do", 0, func() { _, _ = Do(ctx, open, Task{}, fn) }},
		{"Explain", 0, func() { p, _ := open.TryAcquire(Task{}); _ = p.Explain(); p.Release() }},
		{"TryAcquire rejected", 1, func() { use(full.TryAcquire(Task{})) }},
		{"Acquire rejected", 1, func() { use(full.Acquire(ctx, Task{})) }},
		{"Acquire shed", 1, func() { use(shed.Acquire(ctx, Task{})) }},
		{"TryAcquire observed by two", 0, func() { use(watched.TryAcquire(Task{})) }},
		{"Stats", 0, func() { _ = open.Stats() }},
	} {
		c.run()
		if got := testing.AllocsPerRun(200, c.run); got > c.most {
			t.Errorf("%s: %g allocations, want %g at most", c.name, got, c.most)
		}
	}
}

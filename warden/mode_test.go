// SPDX-License-Identifier: Apache-2.0

// An hour of dry run under the real controller, and the switch to enforcing: the target is one that the law would have come to.

package warden

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// imagined measures execution times as they are, and processors as the test says.
type imagined struct {
	*monitor.Sampler
	*monitor.Recorder
	jammed atomic.Bool
}

func (s *imagined) Sample() monitor.Sample {
	sample := s.Sampler.Sample()
	sample.Utilization, sample.Runnable = monitor.Reading{Value: 0.1, OK: true}, monitor.Reading{OK: true}
	sample.Lag, sample.Throttled = monitor.Lag{}, monitor.Reading{}
	if s.jammed.Load() {
		sample.Utilization.Value, sample.Runnable.Value = 1, 30
		sample.Lag = monitor.Lag{P50: 50 * time.Millisecond, P90: 100 * time.Millisecond, Count: 100}
	}
	return sample
}

func TestAnHourOfDryRun(t *testing.T) {
	const users = 60
	for name, world := range map[string]struct {
		dependency  int // slots of what the work of a second waits for
		jammed      bool
		most, least int // the target in the dry run, after its first minute
		afterwards  int // the least target when it has been enforced for five minutes
	}{
		"room for everybody":     {users, false, 3 * users, users, users},
		"a dependency of twenty": {20, false, 3 * users, 1, 15},
		"no processor left":      {users, true, runtime.GOMAXPROCS(0), 1, 16},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				own := must(monitor.New())(t)
				rec := own.Recorder()
				s := &imagined{Sampler: own, Recorder: rec}
				s.jammed.Store(world.jammed)
				w := mustNew(
					t, Config{Limiter: limiter.Config{Mode: decision.DryRun}, Control: control.Config{Max: 1 << 16}, Sampler: s},
				)
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				all.Go(func() { _ = w.Run(ctx) })
				dependency := make(chan struct{}, world.dependency)
				for range users {
					all.Go(func() {
						for ctx.Err() == nil {
							_, _ = Do(ctx, w, Task{}, func(context.Context) (int, error) {
								span := rec.Start("")
								defer span.End()
								dependency <- struct{}{}
								defer func() { <-dependency }()
								time.Sleep(time.Second)
								return 0, nil
							})
						}
					})
				}
				for minute := range 60 {
					time.Sleep(time.Minute)
					if target := w.Limiter().Stats().Target; target > world.most || minute > 0 && target < world.least {
						t.Fatalf(
							"after %d minutes of dry run the target is %d: %v", minute+1, target, w.Latest().Decision.Reasons,
						)
					}
				}
				synctest.Wait() // those that end at this instant have begun again
				before := w.Limiter().Stats()
				if before.Rejected+before.Canceled != 0 || before.Running != users || (before.WouldReject > 0) != world.jammed {
					t.Errorf("after an hour: %+v", before.Tally)
				}
				t.Logf(
					"after an hour the target is %d, %d of %d would have been rejected",
					before.Target, before.WouldReject, before.Submitted,
				)

				s.jammed.Store(false)
				noError(t, w.Limiter().SetMode(decision.Enforce))
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				after := w.Limiter().Stats()
				done := int(after.Executed - before.Executed)
				if after.Target < world.afterwards || after.Target > 3*users || after.Running > max(after.Target, users) ||
					w.Latest().Decision.ShedProbability != 0 {
					t.Errorf("enforced for five minutes: target %d, %+v", after.Target, after.Tally)
				}
				if able := min(users, world.dependency); done < 300*able*8/10 {
					t.Errorf("%d done in five minutes, of %d possible", done, 300*able)
				}
				t.Logf(
					"enforced for five minutes the target is %d, %d were done, %d rejected", after.Target, done, after.Rejected,
				)
				cancel()
				all.Wait()
			})
		})
	}
}

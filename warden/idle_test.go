// SPDX-License-Identifier: Apache-2.0

// On an idle machine a warden harms nobody: not the requests that are shorter than most (Q2), not those beside work that does not
// end (C8), not the compartments of a set (B11).

package warden

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// idle runs a warden of an idle machine, which measures what Do runs, for the length of f. It is called in a bubble of virtual
// time.
func idle(t *testing.T, cfg Config, f func(ctx context.Context, w *Warden)) {
	t.Helper()
	own := must(monitor.New(cfg.Pools...))(t)
	rec := own.Recorder()
	cfg.Pools, cfg.Sampler = nil, &imagined{Sampler: own, Recorder: rec}
	w := mustNew(t, cfg)
	w.recorder = rec
	if set, ok := cfg.ApplyTo.(*bulkhead.Set); ok {
		set.Feed(rec)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = w.Run(ctx) })
	f(ctx, w)
	cancel()
	run.Wait()
}

// every calls f once an interval, each time in its own goroutine, for as long as told, and waits for all.
func every(interval, length time.Duration, f func()) {
	var all sync.WaitGroup
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(interval) {
		all.Go(f)
	}
	all.Wait()
}

// 950 critical requests a second of 1 ms, with 50 ms to live, run beside fifty of 100 ms: the idle slots answer all of them,
// and a dry run announces that.
func TestShortDeadlinesBesideLongWork(t *testing.T) {
	for _, mode := range []decision.Mode{decision.Enforce, decision.DryRun} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				idle(t, Config{Limiter: limiter.Config{Mode: mode}}, func(ctx context.Context, w *Warden) {
					sleep := func(d time.Duration) func(context.Context) (int, error) {
						return func(context.Context) (int, error) { time.Sleep(d); return 0, nil }
					}
					var all sync.WaitGroup
					all.Go(func() {
						every(20*time.Millisecond, 20*time.Second, func() {
							_, _ = Do(ctx, w, Task{Name: "long"}, sleep(100*time.Millisecond))
						})
					})
					time.Sleep(3 * time.Second)
					var asked, answered atomic.Int64
					every(time.Second/950, 10*time.Second, func() {
						asked.Add(1)
						task := Task{Name: "short", Priority: decision.Critical, Deadline: time.Now().Add(50 * time.Millisecond)}
						if _, err := Do(ctx, w, task, sleep(time.Millisecond)); err == nil {
							answered.Add(1)
						}
					})
					all.Wait()
					if s := w.Limiter().Stats(); answered.Load() != asked.Load() || s.WouldReject != 0 {
						t.Errorf(
							"Q2: %d of %d answered, %d would have been rejected; %v",
							answered.Load(), asked.Load(), s.WouldReject, w.Latest().Decision,
						)
					}
				})
			})
		})
	}
}

// Holders take every slot and never end. What comes later is answered all the same, on a cold server and after 20 s of other
// work.
func TestWorkThatDoesNotEnd(t *testing.T) {
	for _, warm := range []time.Duration{0, 20 * time.Second} {
		for _, holders := range []int{16, 18, 64, 560, 1500} {
			t.Run(fmt.Sprintf("%d holders after %v", holders, warm), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					idle(t, Config{}, func(ctx context.Context, w *Warden) {
						short := func(context.Context) (int, error) { time.Sleep(5 * time.Millisecond); return 0, nil }
						every(time.Second/3000, warm, func() { _, _ = Do(ctx, w, Task{}, short) })
						held, release := context.WithCancel(ctx)
						var all sync.WaitGroup
						for range holders {
							all.Go(func() {
								for held.Err() == nil { // again, where it was refused
									_, _ = Do(ctx, w, Task{}, func(context.Context) (int, error) { <-held.Done(); return 0, nil })
									time.Sleep(50 * time.Millisecond)
								}
							})
						}
						time.Sleep(10*time.Second + time.Duration(holders*holders/10)*time.Millisecond)
						var asked, answered atomic.Int64
						every(50*time.Millisecond, 2*time.Second, func() {
							asked.Add(1)
							patient, cancel := context.WithTimeout(ctx, time.Second)
							defer cancel()
							if _, err := Do(patient, w, Task{}, short); err == nil {
								answered.Add(1)
							}
						})
						if answered.Load() != asked.Load() {
							t.Errorf("C8: %d of %d answered: %v", answered.Load(), asked.Load(), w.Latest().Decision)
						}
						release()
						all.Wait()
					})
				})
			})
		}
	}
}

// A set of 100 under a warden with all defaults keeps what it has alone, for as long as the machine is idle.
func TestIdleSetUnderWarden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := must(bulkhead.New(bulkhead.Config{Total: 100, Compartments: []bulkhead.CompartmentConfig{
			{Name: "checkout", Guaranteed: 50, Lendable: 10, Max: 60, MaxQueue: 10, Criticality: decision.Critical},
			{Name: "browse", Guaranteed: 30}, {Name: "analytics", Guaranteed: 15, Max: 40}, {Name: "admin", Guaranteed: 5},
		}}))(t)
		alone := fmt.Sprint(effective(set))
		idle(t, Config{ApplyTo: set}, func(ctx context.Context, w *Warden) {
			for second := range 10 {
				if second == 5 { // work that the warden measures changes nothing either
					every(10*time.Millisecond, 5*time.Second, func() {
						_, _ = Do(ctx, w, Task{}, func(context.Context) (int, error) {
							time.Sleep(50 * time.Millisecond)
							return 0, nil

						})
					})
				}
				time.Sleep(time.Second)
				if now := fmt.Sprint(effective(set)); now != alone {
					t.Fatalf("B11: after %d s the compartments have %s of %s: %v", second+1, now, alone, w.Latest().Decision)
				}
			}
		})
	})
}

// effective lists the limits of the set and of each compartment.
func effective(set *bulkhead.Set) (limits []int) {
	s := set.Snapshot()
	limits = append(limits, s.EffectiveTotal)
	for _, c := range s.Compartments {
		limits = append(limits, c.Effective.Guaranteed, c.Effective.Lendable, c.Effective.Max)
	}
	return limits
}

func TestSetLargerThanControlAllows(t *testing.T) {
	set := must(
		bulkhead.New(bulkhead.Config{Total: 100, Compartments: []bulkhead.CompartmentConfig{{Name: "all", Guaranteed: 100}}}),
	)(t)
	for field, cfg := range map[string]control.Config{"Initial is 99": {Initial: 99}, "Max is 99": {Max: 99}} {
		_, err := New(Config{ApplyTo: set, Control: cfg})
		var invalid *InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), "100") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	for _, cfg := range []control.Config{{Initial: 100}, {Initial: 200}, {Max: 100}, {Min: 120}, {Processors: 128}} {
		w, err := New(Config{ApplyTo: set, Control: cfg})
		if err != nil {
			t.Fatalf("%+v: %v", cfg, err)
		}
		if target := w.Limiter().Stats().Target; target < 100 {
			t.Errorf("%+v: the first limit is %d", cfg, target)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

// What runs for longest is told (Q21), also to those who wait for its slot (Q7), and so is what ended without an answer (Q22).

package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
)

// Permits are taken and released in any order, in every mode, and somebody looks at times. Of those that run, the limiter tells which
// started first, and for how long each has held its slot: since its start where there is an observer, and else since the first look
// after its start. A rejection says so of the oldest.
func TestPropertyLongestRunning(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 5).Draw(rt, "limit")
		observed := rapid.Bool().Draw(rt, "observed")
		steps := rapid.SliceOfN(rapid.IntRange(0, 19), 1, 80).Draw(rt, "steps")
		wrong := ""
		synctest.Test(t, func(t *testing.T) {
			cfg := Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: limit}}
			if observed {
				cfg.Observer = silent{}
			}
			l := must(New(cfg))(t)
			type run struct {
				p    Permit
				name string
				seen time.Time // zero: nobody has looked
			}
			var all []*run // in the order of their starts
			see := func() {
				for _, r := range all {
					if r.seen.IsZero() {
						r.seen = time.Now()
					}
				}
			}
			defer func() {
				for _, r := range all {
					r.p.Release()
				}
			}()
			for i, step := range steps {
				switch {
				case step < 8:
					p, err := l.TryAcquire(Task{Name: fmt.Sprint(i)})
					if err == nil {
						all = append(all, &run{p: p, name: fmt.Sprint(i)})
						if observed {
							see()
						}
						break
					}
					see()
					var r *decision.Rejection
					if !errors.As(err, &r) || len(all) > 0 && r.OldestHeld != time.Since(all[0].seen) {
						wrong = fmt.Sprintf("Q7: step %d: %v held for %s, the oldest for %s", i, err, r.OldestHeld, time.Since(all[0].seen))
						return
					}
				case step < 13 && len(all) > 0:
					k := step * 7 % len(all)
					all[k].p.Release()
					all = slices.Delete(all, k, k+1)
				case step == 13:
					noError(t, l.SetMode(decision.Mode(i%3)))
				case step < 17:
					time.Sleep(time.Second)
				default:
					see()
					n := step - 16
					got, want := l.LongestRunning(n), all[:min(n, len(all))]
					for k := range max(len(got), len(want)) {
						if k >= len(got) || k >= len(want) || got[k] != (Running{Task{Name: want[k].name}, time.Since(want[k].seen)}) {
							wrong = fmt.Sprintf("Q21: step %d: of %d that run, the first %d: %+v", i, len(all), n, got)
							return
						}
					}
					oldest := time.Duration(0)
					if len(all) > 0 {
						oldest = time.Since(all[0].seen)
					}
					if s := l.Stats(); s.OldestRunning != oldest {
						wrong = fmt.Sprintf("Q21: step %d: the oldest runs for %s, want %s", i, s.OldestRunning, oldest)
						return
					}
				}
			}
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// Whoever ends a task first says how, of however many copies of its permit.
func TestRaceEndsOnce(t *testing.T) {
	told := new(endings)
	for _, o := range []Observer{nil, told} {
		l := mustNew(t, Config{Observer: o, Initial: fixed(4)})
		var abandoned, failed, released atomic.Uint64
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range rounds / 4 {
					p := must(l.TryAcquire(Task{Priority: decision.Critical}))(t)
					var both sync.WaitGroup
					both.Go(func() {
						if p.Abandon() {
							abandoned.Add(1)
						}
					})
					both.Go(func() {
						if p.Fail() {
							failed.Add(1)
						}
					})
					if p.Release() {
						released.Add(1)
					}
					both.Wait()
				}
			})
		}
		all.Wait()
		s := l.Stats()
		if s.Abandoned != abandoned.Load() || s.Executed != abandoned.Load()+failed.Load()+released.Load() ||
			s.Executed != 4*(rounds/4) || s.Of(decision.Critical).Abandoned != s.Abandoned || o != nil && told.abandoned.Load() != s.Abandoned {
			t.Errorf("Q22: %d abandoned, %d released, %d told: %+v", abandoned.Load(), released.Load(), told.abandoned.Load(), s)
		}
		if s.Failed != failed.Load() || s.Of(decision.Critical).Failed != s.Failed || o != nil && told.failed.Load() != s.Failed {
			t.Errorf("Q23: %d failed, %d told: %+v", failed.Load(), told.failed.Load(), s)
		}
	}
}

// endings counts the events of tasks that were abandoned or have failed.
type endings struct{ abandoned, failed atomic.Uint64 }

func (c *endings) Observe(e Event) {
	if e.Abandoned {
		c.abandoned.Add(1)
	}
	if e.Failed {
		c.failed.Add(1)
	}
}

// What is not a limiter, or asked for nothing, tells of nothing.
func TestNothingRuns(t *testing.T) {
	l := mustNew(t, Config{})
	must(l.TryAcquire(Task{}))(t)
	var none *Limiter
	for _, got := range [][]Running{none.LongestRunning(3), new(Limiter).LongestRunning(3), l.LongestRunning(0), l.LongestRunning(-1)} {
		if got != nil {
			t.Errorf("Q21: %v", got)
		}
	}
	if (Permit{}).Abandon() || (Permit{}).Fail() {
		t.Error("Q22: the zero Permit was released")
	}
}

// A forgotten Release names itself: to who waits until its time is up, in numbers and in words.
func TestAForgottenReleaseShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(New(Config{Name: "db", MaxQueue: 9, Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 2}}))(t)
		must(l.Acquire(t.Context(), Task{}))(t) // forgotten
		time.Sleep(time.Minute)
		defer must(l.Acquire(t.Context(), Task{}))(t).Release()
		for i, want := range []struct{ text, err, log string }{
			{"2 in flight, 0 queued, concurrency limit 2 reached, the oldest slot held for 5s or longer;",
				`limiter: "db": rejected: deadline_exceeded (target reached)`, "oldest_held=5s"},
			{"concurrency limit 2 reached, the oldest slot held for 10s or longer;",
				`limiter: "db": rejected: deadline_exceeded (target reached, a slot held for 10s or longer)`, "oldest_held=10s"},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, err := l.Acquire(ctx, Task{})
			cancel()
			r := wantReason(t, err, decision.DeadlineExceeded)
			if !strings.Contains(r.String(), want.text) || r.Error() != want.err || !strings.Contains(r.LogValue().String(), want.log) {
				t.Errorf("Q7: %d: %v: %s\n%s", i, r, r.String(), r.LogValue())
			}
		}
		_, err := l.TryAcquire(Task{})
		if r := wantReason(t, err, decision.NoSlot); r.OldestHeld != 10*time.Second {
			t.Errorf("Q7: %s", r.OldestHeld)
		}
	})
}

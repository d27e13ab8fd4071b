// SPDX-License-Identifier: Apache-2.0

// How long the oldest function has run (B16).

package bulkhead

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
)

// Functions begin and end in any order, in every mode, and their callers leave after a while. With a look every second, what is
// told of the oldest is never more than its age, and at most a second less.
func TestPropertyOldestRunning(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		mode := rapid.SampledFrom([]decision.Mode{decision.Enforce, decision.DryRun, decision.Bypass}).Draw(rt, "mode")
		steps := rapid.SliceOfN(rapid.IntRange(0, 19), 1, 80).Draw(rt, "steps")
		wrong := ""
		synctest.Test(t, func(t *testing.T) {
			s, a := single(t, CompartmentConfig{Guaranteed: 3, Timeout: 2 * time.Second, Mode: mode})
			type run struct {
				began time.Time
				end   chan struct{}
			}
			var all []*run // in the order of their starts
			stop := func(k int) {
				close(all[k].end)
				all = slices.Delete(all, k, k+1)
				synctest.Wait()
			}
			for i, step := range steps {
				switch {
				case step < 7:
					r := &run{end: make(chan struct{})}
					go func() {
						_, _ = Do(context.Background(), a, func(context.Context) (int, error) {
							r.began = time.Now()
							<-r.end
							return 0, nil
						})
					}()
					synctest.Wait()
					if !r.began.IsZero() {
						all = append(all, r)
					}
				case step < 12 && len(all) > 0:
					stop(step * 5 % len(all))
				case step < 13:
					s.Apply(bound(uint64(i+1), 10))
				case step < 15:
					_, _ = Do(context.Background(), a, nothing)
				default:
					time.Sleep(time.Second)
					synctest.Wait()
				}
				oldest := time.Duration(0)
				if len(all) > 0 {
					oldest = time.Since(all[0].began)
				}
				if got := a.Snapshot().OldestRunning; got > oldest || got < oldest-time.Second {
					wrong = fmt.Sprintf("B16: step %d: the oldest runs for %s, said to be %s", i, oldest, got)
					break
				}
			}
			for len(all) > 0 {
				stop(0)
			}
			if got := a.Snapshot(); wrong == "" && (got.OldestRunning != 0 || got.InFlight != 0) {
				wrong = fmt.Sprintf("B16: %d run at the end, the oldest for %s", got.InFlight, got.OldestRunning)
			}
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// What is kept of the past is bounded by what runs, however often somebody looks.
func TestCohortsStayFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a := single(t, CompartmentConfig{Guaranteed: 3})
		_, hung, _ := a.Acquire(t.Context())
		for range 1000 {
			time.Sleep(time.Second)
			_, p, _ := a.Acquire(t.Context())
			a.Snapshot()
			p.Release(nil)
		}
		if got := a.Snapshot().OldestRunning; got < 999*time.Second || len(a.pool.cohorts.closed) > 3 {
			t.Errorf("B16: %s, %d cohorts", got, len(a.pool.cohorts.closed))
		}
		hung.Release(nil)
	})
}

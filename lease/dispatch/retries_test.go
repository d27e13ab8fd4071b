// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D7: how long a record waits after a failure that was seen, and after one that was not; all in virtual time.

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// skewed is a ledger whose leases were granted by a clock that is off.
type skewed struct {
	lease.Ledger
	by time.Duration
}

func (s skewed) TryAcquire(ctx context.Context, domain string, offset int64) (lease.Acquisition, error) {
	a, err := s.Ledger.TryAcquire(ctx, domain, offset)
	a.Lease.AcquiredAt = a.Lease.AcquiredAt.Add(s.by)
	return a, err
}

// After the nth failure that was seen a pause is at least half of d(n) and at most d(n), whatever the handlers take, chance draws
// and the clock says that the lease was granted by.
func TestPropertyPauseAfterFailure(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		backoff := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(rt, "backoff"))
		most := backoff + time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(rt, "more"))
		chance := rapid.SliceOfN(rapid.Float64Range(0, 0.999), 8, 8).Draw(rt, "chance")
		took := rapid.SliceOfN(rapid.Int64Range(0, int64(time.Minute)), 9, 9).Draw(rt, "took")
		by := time.Duration(rapid.Int64Range(-int64(1000*time.Hour), int64(1000*time.Hour)).Draw(rt, "clock"))
		var begins []time.Time
		synctest.Test(t, func(t *testing.T) {
			draws := 0
			defer dispatch.SetRandom(func() float64 { draws++; return chance[draws%len(chance)] })()
			r := run(t, dispatch.Partition{Ledger: skewed{memory(t, 8), by}, Source: fill("k")}, dispatch.Config{
				Backoff: backoff, MaxBackoff: most, CommitEvery: 10 * time.Hour,
				Handler: func(_ context.Context, job dispatch.Job) error {
					time.Sleep(time.Duration(took[job.Lease.RetryCount]))
					return errors.New("never")
				},
			})
			time.Sleep(9 * (most + time.Minute))
			r.mustStop(t)
			begins, _ = r.at("k")
		})
		if len(begins) != 9 {
			rt.Fatalf("D7: %d attempts", len(begins))
		}
		for i, begin := range begins[1:] {
			pause := begin.Sub(begins[i].Add(time.Duration(took[i])))
			d := min(float64(most), float64(backoff)*math.Pow(2, float64(i)))
			if float64(pause) < d/2-1 || float64(pause) > d+1 {
				rt.Fatalf("D7: pause %d is %v, d is %v", i+1, pause, time.Duration(d))
			}
		}
	})
}

// Who takes a waiting record over waits until its schedule is over, d(n) at most; and the number of retries has no bound that a
// sum could overflow or take long for.
func TestPropertyTakenOverGoesOnInItsSchedule(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var waits, wants time.Duration
		synctest.Test(t, func(*testing.T) {
			u := rapid.Float64Range(0, 0.999).Draw(rt, "u")
			cfg := dispatch.Config{
				Backoff: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(rt, "backoff")),
			}
			defer dispatch.SetRandom(func() float64 { return u })()
			cfg.MaxBackoff = cfg.Backoff + time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(rt, "more"))
			n := rapid.OneOf(rapid.IntRange(0, 200), rapid.Just(math.MaxInt32)).Draw(rt, "n")
			since := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(100*time.Hour)).Draw(rt, "since"))

			d := func(i int) float64 {
				return min(float64(cfg.MaxBackoff), float64(cfg.Backoff)*math.Pow(2, float64(i-1)))
			}
			end := 0.0
			for i := 1; i <= min(n, 100); i++ { // d(100) is MaxBackoff
				end += d(i)
			}
			end += float64(max(0, n-100)) * d(100)
			want := 0.0
			if n > 0 {
				want = max(0, min(end-float64(since), d(n)*(1-u/2)))
			}
			waits, wants = dispatch.Resume(cfg, time.Now().Add(-since), n), time.Duration(want)
		})
		if math.Abs(float64(waits-wants)) > 10+1e-9*float64(wants) {
			rt.Fatalf("D7: waits %v, want %v", waits, wants)
		}
	})
}

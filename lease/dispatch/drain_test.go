// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D4: what a drain finishes, what it leaves, and what the next Run makes of that; all in virtual time.

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// What is admitted once the drain has begun does not start.
func TestAdmittedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := func(_ context.Context, fn func() error) error {
			time.Sleep(2 * time.Second)
			return fn()
		}
		r := run(t, dispatch.Partition{Ledger: memory(t, 3), Source: fill("a")}, dispatch.Config{Concurrency: late})
		time.Sleep(time.Second)
		r.mustStop(t)
		same(t, "D4: started in the drain", r.of("a"))
		equal(t, "succeeded", r.Stats().Succeeded, 0)
	})
}

// What the drain has no time for is left under its lease, and done again by the next one. A handler that the drain interrupts
// has not failed.
func TestDrainTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		partition := dispatch.Partition{Ledger: memory(t, 3), Source: fill("deaf", "listens", "late", "retries")}
		release := make(chan struct{})
		r := run(t, partition, dispatch.Config{
			DrainTimeout: time.Second, Backoff: time.Hour, MaxBackoff: time.Hour,
			Handler: func(ctx context.Context, job dispatch.Job) error {
				switch job.Record.Domain {
				case "deaf":
					<-release
				case "listens":
					<-ctx.Done()
					return ctx.Err()
				case "late": // its context has ended, but it makes it
					<-ctx.Done()
					time.Sleep(10 * time.Millisecond)
				case "retries":
					return errors.New("later")
				}
				return nil
			},
		})
		synctest.Wait()
		began := time.Now()
		err := r.stop()
		equal(t, "took", time.Since(began), 1100*time.Millisecond)
		if !errors.Is(err, dispatch.ErrDrain) || !strings.HasSuffix(err.Error(), "1 abandoned") {
			t.Errorf("D4: drain: %v", err)
		}
		for domain, held := range map[string]bool{"deaf": true, "listens": true, "late": false, "retries": true} {
			v, _ := partition.Ledger.Inspect(context.Background(), domain)
			equal(t, domain, v.Lease != nil, held)
			if held {
				equal(t, domain+": retries", v.Lease.RetryCount, map[string]int{"retries": 1}[domain])
				equal(t, domain+": given back", v.Lease.Released, true)
			}
		}
		close(release) // too late: nobody listens any more
		synctest.Wait()
		r = r.again(t, partition, dispatch.Config{Backoff: time.Second})
		time.Sleep(time.Hour)
		r.mustStop(t)
		equal(t, "reclaimed", r.Stats().Reclaimed, 3)
		for domain, want := range map[string]int{"deaf": 2, "listens": 2, "late": 1, "retries": 2} {
			equal(t, "D4: runs of "+domain, len(r.of(domain)), want)
		}
	})
}

// The table of a review: hand-overs use up no attempts and begin no pause anew, however many there are: not of what waits for
// its retry, and not of what they cut off.
func TestHandOversCostNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const retries = 3
		ledger, log := memory(t, retries), fill("waits", "is cut off")
		var counts []int
		began, r := time.Now(), noted()
		for range 20 { // of 1.05 s
			r = r.again(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{
				Backoff: 5 * time.Second, MaxBackoff: 5 * time.Second,
				DrainTimeout: 500 * time.Millisecond,
				Handler: func(ctx context.Context, job dispatch.Job) error {
					if job.Record.Domain == "waits" {
						return errors.New("down")
					}
					counts = append(counts, job.Lease.RetryCount)
					<-ctx.Done()
					return ctx.Err()
				},
			})
			time.Sleep(550 * time.Millisecond)
			r.mustStop(t)
		}
		times, _ := r.at("waits")
		equal(t, "attempts", len(times), retries+1)
		for i, at := range times { // while one drains nothing starts
			if at, due := at.Sub(began), time.Duration(i)*5*time.Second; at < due || at > due+time.Duration(i)*500*time.Millisecond {
				t.Errorf("D4: attempt %d at %v, due at %v", i, at, due)
			}
		}
		equal(t, "letters", len(r.letters()), 1)
		same(t, "D4: retries of what was cut off", counts, make([]int, 20)...)
	})
}

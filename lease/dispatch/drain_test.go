// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D4: what a drain finishes, what it leaves, and what the next Run makes of that; all in virtual time.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// A drain lets handlers finish, starts nothing, and the next Run goes on behind what was done.
func TestDrainAndRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, log := memory(t, 3), new(dispatch.Log)
		for i := range 100 {
			log.Append(fmt.Sprint("k", i%5), nil)
		}
		c := newCalls()
		handler := func(_ context.Context, job dispatch.Job) error {
			defer c.enter(job)()
			time.Sleep(time.Second)
			return nil
		}
		r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{MaxInFlight: 3, Handler: handler})
		time.Sleep(4500 * time.Millisecond)
		r.mustStop(t)
		equal(t, "done in the first life", r.Stats().Succeeded, 15)
		from, _ := log.Committed(context.Background())
		equal(t, "committed", from, r.Stats().Floor)
		if from == 0 {
			t.Error("D4: nothing committed")
		}

		r = run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{MaxInFlight: 3, Handler: handler})
		time.Sleep(time.Minute)
		r.mustStop(t)
		c.check(t)
		equal(t, "reclaimed", r.Stats().Reclaimed, 0)
		for i := range 5 {
			if offsets := c.of(fmt.Sprint("k", i)); len(offsets) != 20 || !slices.IsSorted(offsets) {
				t.Errorf("D4: k%d: %v", i, offsets)
			}
		}
	})
}

// late admits everybody, but only after a while, whatever has happened meanwhile.
func late(_ context.Context, fn func() error) error {
	time.Sleep(2 * time.Second)
	return fn()
}

// What is admitted once the drain has begun does not start.
func TestAdmittedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, c := memory(t, 3), newCalls()
		r := run(t, dispatch.Partition{Ledger: ledger, Source: fill("a")}, dispatch.Config{
			Concurrency: late,
			Handler: func(_ context.Context, job dispatch.Job) error {
				defer c.enter(job)()
				return nil
			},
		})
		time.Sleep(time.Second)
		r.mustStop(t)
		if got := c.of("a"); len(got) > 0 || r.Stats().Succeeded > 0 {
			t.Errorf("D4: started in the drain: %v", got)
		}
	})
}

// What the drain has no time for is left under its lease, and done again by the next one. A handler that the drain interrupts
// has not failed.
func TestDrainTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, log := memory(t, 3), fill("deaf", "listens", "late", "retries")
		var mu sync.Mutex
		finished := map[string]int{}
		release := make(chan struct{})
		first := true
		handler := func(ctx context.Context, job dispatch.Job) error {
			mu.Lock()
			mine := first
			mu.Unlock()
			if mine {
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
			}
			mu.Lock()
			defer mu.Unlock()
			finished[job.Record.Domain]++
			return nil
		}
		r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{Handler: handler, DrainTimeout: time.Second,
			Backoff: time.Hour, MaxBackoff: time.Hour})
		synctest.Wait()
		began := time.Now()
		err := r.stop()
		equal(t, "took", time.Since(began), 1100*time.Millisecond)
		if !errors.Is(err, dispatch.ErrDrain) || !strings.HasSuffix(err.Error(), "1 abandoned") {
			t.Errorf("D4: drain: %v", err)
		}
		for domain, held := range map[string]bool{"deaf": true, "listens": true, "late": false, "retries": true} {
			v, _ := ledger.Inspect(context.Background(), domain)
			equal(t, domain, v.Lease != nil, held)
			if held {
				equal(t, domain+": retries", v.Lease.RetryCount, map[string]int{"retries": 1}[domain])
				equal(t, domain+": given back", v.Lease.Released, true)
			}
		}
		close(release) // too late: nobody listens any more
		synctest.Wait()
		mu.Lock()
		equal(t, "deaf", finished["deaf"], 1)
		first = false
		mu.Unlock()

		r = run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{Handler: handler, Backoff: time.Second})
		time.Sleep(time.Hour)
		r.mustStop(t)
		mu.Lock()
		defer mu.Unlock()
		equal(t, "reclaimed", r.Stats().Reclaimed, 3)
		for domain, want := range map[string]int{"deaf": 2, "listens": 1, "late": 1, "retries": 1} {
			equal(t, domain, finished[domain], want)
		}
	})
}

// Restart with a backlog: the ledger knows what waits, the source has it, and the payloads come back.
func TestRestartWithBacklog(t *testing.T) {
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprint("ledger kept ", keep), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ledger, log := memory(t, 3), new(dispatch.Log)
				for i := range 60 {
					log.Append(fmt.Sprint("k", i%4), []byte{byte(i)})
				}
				p := &process{Ledger: ledger, Source: log}
				c := newCalls()
				die := make(chan struct{})
				r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
					DrainTimeout: time.Second,
					Handler: func(_ context.Context, job dispatch.Job) error {
						defer c.enter(job)()
						if len(c.of(job.Record.Domain)) == 4 {
							<-die
						}
						time.Sleep(time.Second)
						return nil
					},
				})
				time.Sleep(30 * time.Second)
				p.kill()
				close(die)
				if r.stop() == nil {
					t.Error("D4: a dead process drained")
				}
				before := map[string]int{}
				for name := range c.offsets {
					before[name] = len(c.of(name))
				}

				if !keep {
					ledger = memory(t, 3)
				}
				r = run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{
					Handler: func(_ context.Context, job dispatch.Job) error {
						defer c.enter(job)()
						if int(job.Record.Payload[0]) != int(job.Record.Offset) {
							t.Errorf("D4: %d has payload %d", job.Record.Offset, job.Record.Payload)
						}
						return nil
					},
				})
				time.Sleep(time.Minute)
				r.mustStop(t)
				equal(t, "floor", r.Stats().Committed, 60)
				for name, n := range before {
					again := c.of(name)[n:]
					if !slices.IsSorted(again) || again[len(again)-1] != c.of(name)[0]+56 {
						t.Errorf("D4: %s: after the restart %v", name, again)
					}
					// The three that were done are not done again while somebody remembers: the ledger, or else the floor.
					if keep {
						equal(t, name, len(again), 12)
					}
				}
			})
		})
	}
}

// The table of a review: hand-overs use up no attempts and begin no pause anew, however many there are: not of what waits for
// its retry, and not of what they cut off.
func TestHandOversCostNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const retries = 3
		ledger, log := memory(t, retries), fill("waits", "is cut off")
		c := newCalls()
		cut := 0
		var counts []int
		var letters []dispatch.DeadLetter
		began := time.Now()
		for range 20 { // of 1.05 s
			r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{
				Backoff: 5 * time.Second, MaxBackoff: 5 * time.Second,
				DrainTimeout: 500 * time.Millisecond,
				Handler: func(ctx context.Context, job dispatch.Job) error {
					defer c.enter(job)()
					if job.Record.Domain == "waits" {
						return errors.New("down")
					}
					counts = append(counts, job.Lease.RetryCount)
					cut++
					<-ctx.Done()
					return ctx.Err()
				},
				DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
					letters = append(letters, letter)
					return nil
				},
			})
			time.Sleep(550 * time.Millisecond)
			r.mustStop(t)
		}
		times, _ := c.at("waits")
		var at []time.Duration
		for _, time := range times {
			at = append(at, time.Sub(began))
		}
		equal(t, "attempts", len(at), retries+1)
		for i, at := range at { // while one drains nothing starts
			if due := time.Duration(i) * 5 * time.Second; at < due || at > due+time.Duration(i)*500*time.Millisecond {
				t.Errorf("D4: attempt %d at %v, due at %v", i, at, due)
			}
		}
		equal(t, "letters", len(letters), 1)
		equal(t, "D4: cut off", cut, 20)
		for _, count := range counts {
			equal(t, "retries of what was cut off", count, 0)
		}
	})
}

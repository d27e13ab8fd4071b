// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file is what a handler can answer besides success and failure: too early, and never; and what becomes of one that takes
// too long. All in virtual time.

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// A permanent failure is given up at once, by whatever error carries it, also when the ledger's reply is lost; what is behind
// it goes on.
func TestPermanentFailureIsGivenUpAtOnce(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newProcess(memory(t, 5), fill("k", "k"))
			p.fault = func(call, _ string) (before, after error) {
				if call == "GiveUp" && lost {
					lost = false
					return nil, errLost
				}
				return nil, nil
			}
			r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{Handler: func(_ context.Context, job dispatch.Job) error {
				if job.Record.Offset == 0 {
					return fmt.Errorf("%w: %w", dispatch.ErrPermanent, errLost)
				}
				return nil
			}})
			time.Sleep(time.Minute)
			r.mustStop(t)
			same(t, "k", r.of("k"), 0, 1)
			if letters := r.letters(); len(letters) != 1 || letters[0].Record.Offset != 0 || !errors.Is(letters[0].Err, errLost) {
				t.Errorf("letters: %+v", letters)
			}
			equal(t, "gave up", r.Stats().GaveUp, 1)
			equal(t, "floor", r.Stats().Floor, 2)
		})
	}
}

// Later is neither a failure nor an attempt, however often it is said; the domain waits, its order stays.
func TestLaterCountsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counts []int
		ledger := memory(t, 1)
		r := run(t, dispatch.Partition{Ledger: ledger, Source: fill("k", "k")}, dispatch.Config{
			Handler: func(_ context.Context, job dispatch.Job) error {
				counts = append(counts, job.Lease.RetryCount)
				switch n := len(counts); {
				case n < 5:
					return fmt.Errorf("the shop is closed: %w", dispatch.Later(time.Hour))
				case n == 5:
					return dispatch.Later(0)
				case n == 6:
					return errLost
				}
				return nil
			},
		})
		began := time.Now()
		time.Sleep(time.Minute)
		for l := range ledger.Held(t.Context()) {
			equal(t, "given back meanwhile", l.Released, true)
		}
		time.Sleep(6 * time.Hour)
		r.mustStop(t)
		same(t, "k", r.of("k"), 0, 0, 0, 0, 0, 0, 0, 1)
		same(t, "retry counts", counts, 0, 0, 0, 0, 0, 0, 1, 0)
		times, _ := r.at("k")
		equal(t, "the fifth", times[4].Sub(began), 4*time.Hour)
		equal(t, "the sixth", times[5].Sub(times[4]), 100*time.Millisecond)
		equal(t, "told", len(r.seen.of(dispatch.Postponed)), 5)
		equal(t, "retried", r.Stats().Retried, 1)
	})
}

// A handler and a receiver of dead letters have AttemptTimeout, by their contexts; one that does not listen has the last word
// all the same.
func TestAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		letters := 0
		r := run(t, dispatch.Partition{Ledger: memory(t, 1), Source: fill("listens", "deaf")}, dispatch.Config{
			AttemptTimeout: time.Second,
			Handler: func(ctx context.Context, job dispatch.Job) error {
				if job.Record.Domain == "deaf" {
					time.Sleep(time.Minute)
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			},
			DeadLetter: func(ctx context.Context, _ dispatch.DeadLetter) error {
				if letters++; letters == 1 {
					<-ctx.Done()
				}
				return ctx.Err()
			},
		})
		began := time.Now()
		time.Sleep(time.Hour)
		r.mustStop(t)
		times, _ := r.at("listens")
		equal(t, "attempts", len(times), 2)
		equal(t, "the second", times[1].Sub(began), 1100*time.Millisecond)
		for _, e := range r.seen.of(dispatch.GaveUp) {
			if e.Domain != "listens" || !errors.Is(e.Err, context.DeadlineExceeded) {
				t.Errorf("gave up: %+v", e)
			}
		}
		same(t, "deaf", r.of("deaf"), 1)
		equal(t, "letters", letters, 2)
		equal(t, "succeeded", r.Stats().Succeeded, 1)
		equal(t, "dead lettered", r.Stats().DeadLettered, 1)
	})
}

// Records without a key share 256 domains, whatever their offsets, and one that fails delays those of its own.
func TestKeyless(t *testing.T) {
	domains := map[string]int{}
	for offset := int64(-1000); offset < 1000; offset++ {
		domains[dispatch.Keyless(offset)]++
	}
	equal(t, "domains", len(domains), 256)
	for domain, n := range domains {
		if n < 2000/256 || n > 2000/256+1 {
			t.Errorf("%s has %d of 2000", domain, n)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		log := new(dispatch.Log)
		for offset := range int64(1024) {
			log.Append(dispatch.Keyless(offset), nil)
		}
		r := run(t, dispatch.Partition{Ledger: memory(t, 1000), Source: log}, dispatch.Config{
			Backoff: time.Hour, MaxBackoff: time.Hour,
			Handler: func(_ context.Context, job dispatch.Job) error {
				if job.Record.Offset == 5 {
					return errLost
				}
				return nil
			},
		})
		time.Sleep(time.Minute)
		equal(t, "succeeded", r.Stats().Succeeded, 1020)
		equal(t, "floor", r.Stats().Floor, 5)
		r.mustStop(t)
	})
}

// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D5: stuck, broken, hot and slow keys, which delay only themselves; all in virtual time.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// A slow key holds the floor and nothing else.
func TestSlowKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := fill("slow")
		for i := range 500 {
			log.Append(fmt.Sprint("k", i%20), nil)
		}
		r := run(t, dispatch.Partition{Ledger: memory(t, 0), Source: log}, dispatch.Config{
			MaxInFlight: 2, MaxBuffered: 20, MaxPerDomain: 1,
			Handler: func(_ context.Context, job dispatch.Job) error {
				time.Sleep(time.Millisecond)
				if job.Record.Domain == "slow" {
					time.Sleep(10 * time.Second)
				}
				return nil
			},
		})
		time.Sleep(5 * time.Second)
		s := r.Stats()
		equal(t, "done", s.Succeeded, 500)
		equal(t, "floor", s.Floor, 0)
		equal(t, "oldest", s.Oldest, 5*time.Second)
		equal(t, "lag", s.Lag, 501)
		time.Sleep(6 * time.Second)
		equal(t, "floor", r.Stats().Floor, 501)
		equal(t, "lag", r.Stats().Lag, 0)
		r.mustStop(t)
	})
}

// Of two partitions one is idle, and in the other many keys fail at each attempt: all others are handled, and once the failing
// ones succeed, their records are too, in order.
func TestManyStuckKeysDelayOnlyThemselves(t *testing.T) {
	for stuck, owner := range map[int]func(string) string{100: nil, 50: func(string) string { return "all" }} {
		synctest.Test(t, func(t *testing.T) {
			const others, records = 50, 15_000
			log := new(dispatch.Log)
			for i := range records {
				log.Append(fmt.Sprint([]string{"stuck-", "other-", "other-"}[i%3], i/3%stuck%[]int{stuck, others, others}[i%3]), nil)
			}
			var broken atomic.Bool
			broken.Store(true)
			var handled, failed atomic.Int64
			cfg := dispatch.Config{DeadLetter: dispatch.Discard, Owner: owner, Handler: func(_ context.Context, job dispatch.Job) error {
				if broken.Load() && job.Record.Domain[0] == 's' {
					failed.Add(1)
					return errors.New("not yet")
				}
				handled.Add(1)
				return nil
			}}
			r := consume(t, cfg)
			r.give(dispatch.Partition{Name: "busy", Ledger: memory(t, 1<<30), Source: log})
			r.give(dispatch.Partition{Name: "idle", Ledger: memory(t, 1<<30), Source: new(dispatch.Log)})
			time.Sleep(time.Hour)
			equal(t, "D5: others", int(handled.Load()), records/3*2)
			if int(failed.Load()) < stuck {
				t.Errorf("%d failures: nothing shown", failed.Load())
			}
			broken.Store(false)
			time.Sleep(time.Hour)
			equal(t, "D2: all", int(handled.Load()), records)
			for key := range stuck { // D1: in order, each once
				offsets := slices.Compact(r.of(fmt.Sprint("stuck-", key))) // without the failures
				equal(t, "records of a key", len(offsets), records/3/stuck)
				if !slices.IsSorted(offsets) {
					t.Errorf("D1: %v", offsets)
				}
			}
			r.mustStop(t)
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// Keys that fail for long give the room of their records to others.

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
			c := newCalls()
			cfg := dispatch.Config{DeadLetter: dispatch.Discard, Owner: owner, Handler: func(_ context.Context, job dispatch.Job) error {
				if broken.Load() && job.Record.Domain[0] == 's' {
					failed.Add(1)
					return errors.New("not yet")
				}
				defer c.enter(job)()
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
				offsets := c.of(fmt.Sprint("stuck-", key))
				equal(t, "records of a key", len(offsets), records/3/stuck)
				if !slices.IsSorted(offsets) {
					t.Errorf("D1: %v", offsets)
				}
			}
			if err := r.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

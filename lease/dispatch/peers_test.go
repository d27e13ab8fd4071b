// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file tries bugs that others had, by the issue in which they were told, on the dispatcher; all in virtual time.

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// confluentinc/parallel-consumer #857: after a rebalance the records of a partition that the same process still had, or had
// again, were taken for those of another owner and skipped, and the partition stood still until a restart.
func TestPeer_ParallelConsumerStandsStillAfterARebalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 40
		p := filled(t, "p", records)
		c := consume(t, dispatch.Config{
			MaxInFlight: 3, MaxBuffered: 12, CommitEvery: 10 * time.Millisecond,
			Handler: func(_ context.Context, job dispatch.Job) error {
				time.Sleep(70 * time.Millisecond)
				if job.Lease.RetryCount == 0 && job.Record.Offset%2 == 0 {
					return errors.New("once") // so that it is in its pause when the partition goes
				}
				return nil
			},
		})
		for i := range 12 { // it goes in the middle of its work, and comes back at once
			take := c.give(p)
			time.Sleep(100 * time.Millisecond)
			if take(nil); i%2 == 0 {
				time.Sleep(time.Second)
			}
		}
		c.give(p)
		time.Sleep(time.Minute)
		if floor, err := p.Source.Committed(t.Context()); err != nil || floor != records {
			t.Errorf("the floor stands at %d of %d, %v", floor, records, err)
		}
		c.mustStop(t)
	})
}

// confluentinc/parallel-consumer #909 (seen as #875): a record that was read again lay below the stale one of an assignment
// that had ended, and was never handled; the floor stood before it.
func TestPeer_ParallelConsumerStaleRecordHidesItsSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 20
		p, hang := filled(t, "p", records), make(chan struct{})
		var again atomic.Bool
		c := consume(t, dispatch.Config{
			MaxInFlight: records, DrainTimeout: time.Second,
			Handler: func(_ context.Context, job dispatch.Job) error {
				if !again.Load() && job.Record.Offset%2 == 0 {
					<-hang // it outlives its assignment
				}
				return nil
			},
		})
		take := c.give(p)
		time.Sleep(100 * time.Millisecond)
		take(dispatch.Lost("p", nil))
		again.Store(true)
		c.give(p)
		time.Sleep(time.Minute)
		close(hang)
		time.Sleep(time.Minute)
		if floor, err := p.Source.Committed(t.Context()); err != nil || floor != records {
			t.Errorf("the floor stands at %d of %d, %v", floor, records, err)
		}
		for i := range records {
			if name := fmt.Sprint("p/", i); len(c.of(name)) == 0 {
				t.Errorf("%s was not handled", name)
			}
		}
		_ = c.stop()
	})
}

// twmb/franz-go #57: what had been polled was committed by the clock, handled or not, and lost when the process was killed.
func TestPeer_FranzGoCommitsWhatWasOnlyPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, release := spread(30, 30), make(chan struct{})
		p := newProcess(memory(t, 3), log)
		r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
			MaxInFlight: 30, CommitEvery: time.Millisecond, DrainTimeout: time.Second,
			Handler: func(_ context.Context, job dispatch.Job) error {
				if job.Record.Offset >= 10 {
					<-release
				}
				return nil
			},
		})
		time.Sleep(time.Minute)
		p.kill()
		_ = r.stop()
		if floor, err := log.Committed(t.Context()); err != nil || floor != 10 {
			t.Errorf("committed %d, and 10 are done: %v", floor, err)
		}
		close(release)
		next := run(t, dispatch.Partition{Ledger: memory(t, 3), Source: log}, dispatch.Config{})
		time.Sleep(time.Minute)
		next.mustStop(t)
		for i := 10; i < 30; i++ {
			same(t, fmt.Sprint("k", i), next.of(fmt.Sprint("k", i)), int64(i))
		}
	})
}

// redpanda-data/connect #4477, on franz-go's marks: a handler that ended after its partition had been revoked had its offset
// committed all the same, over the new owner's.
func TestPeer_FranzGoCommitAfterRevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, release := fill("a", "b"), make(chan struct{})
		p := newProcess(memory(t, 3), log)
		r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
			CommitEvery: time.Millisecond, DrainTimeout: time.Minute,
			Handler: func(context.Context, dispatch.Job) error { <-release; return nil },
		})
		time.Sleep(time.Second)
		r.cancel(dispatch.Lost("p", nil))
		time.Sleep(time.Second)
		close(release)
		<-r.result
		time.Sleep(time.Minute)
		if floor, err := log.Committed(t.Context()); err != nil || floor != 0 || len(r.seen.of(dispatch.Committed)) > 0 {
			t.Errorf("%d is committed after it was revoked: %v", floor, err)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D6, and other owners: who died with a lease, who comes late, who takes one; all in virtual time.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// A record that kills its process every time is given up after MaxRetries+1 lives, and the others of its domain go on.
func TestKillerReachesGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const retries = 2
		ledger, log := memory(t, retries), fill("k", "k", "other")
		var mu sync.Mutex
		var letters []dispatch.DeadLetter
		done := map[int64]int{}
		killed := 0
		for life := 1; life <= 6; life++ {
			p := &process{Ledger: ledger, Source: log}
			dead := false
			r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
				DrainTimeout: time.Millisecond, Backoff: time.Second,
				Handler: func(_ context.Context, job dispatch.Job) error {
					if job.Record.Offset == 0 {
						time.Sleep(time.Millisecond) // the innocent is done by then
					}
					mu.Lock()
					defer mu.Unlock()
					if dead {
						return errDead
					}
					if job.Record.Offset == 0 {
						p.kill()
						dead = true
						killed++
						return errDead
					}
					done[job.Record.Offset]++
					return nil
				},
				DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
					mu.Lock()
					defer mu.Unlock()
					letters = append(letters, letter)
					return nil
				},
			})
			time.Sleep(time.Minute)
			_ = r.stop()
		}
		equal(t, "lives that it took", killed, retries+1)
		equal(t, "dead letters", len(letters), 1)
		equal(t, "its offset", letters[0].Record.Offset, 0)
		equal(t, "1", done[1], 1)
		from, _ := log.Committed(context.Background())
		equal(t, "committed", from, 3)
	})
}

// Taking a partition fences the former holder out, counts nothing, and goes on in the schedule of the retries.
func TestTakingFencesAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, log := memory(t, 9), fill("k")
		p := &process{Ledger: ledger, Source: log}
		c := newCalls()
		began := time.Now()
		cfg := dispatch.Config{
			Backoff: time.Second, MaxBackoff: time.Hour, DrainTimeout: time.Millisecond,
			Handler: func(_ context.Context, job dispatch.Job) error {
				defer c.enter(job)()
				return errors.New("never")
			},
		}
		r := run(t, dispatch.Partition{Ledger: p, Source: p}, cfg) // attempts at 0, 1, 3, 7 s
		time.Sleep(8 * time.Second)
		p.kill()
		_ = r.stop()

		seen := &events{}
		cfg.Observer = seen
		// The next is due at 15 s all the same, and the one after 16 s later.
		r = run(t, dispatch.Partition{Ledger: ledger, Source: log}, cfg)
		synctest.Wait()
		held := seen.of(dispatch.Reclaimed)
		if len(held) != 1 || held[0].RetryCount != 4 {
			t.Fatalf("D6: reclaimed: %+v", held)
		}
		_, tokens := c.at("k")
		if _, err := ledger.Succeed(context.Background(), "k", tokens[0]); !errors.Is(err, lease.ErrTokenMismatch) {
			t.Errorf("D6: the former holder: %v", err)
		}
		time.Sleep(30 * time.Second)
		r.mustStop(t)
		same(t, "offsets", c.of("k"), 0, 0, 0, 0, 0, 0)
		equal(t, "next attempt", c.times["k"][4].Sub(began), 15*time.Second)
		equal(t, "and the one after", c.times["k"][5].Sub(began), 31*time.Second)

		// A long time later everything is due at once, not in another hour.
		time.Sleep(time.Hour * 5)
		before := time.Now()
		r = run(t, dispatch.Partition{Ledger: ledger, Source: log}, cfg)
		time.Sleep(2 * time.Second)
		r.mustStop(t)
		equal(t, "due at once", c.times["k"][6].Sub(before), 0)
	})
}

// Rebalance: the partition moves while a handler runs, and the source does not know it. The old owner is fenced out where it
// was at work, and commits nothing that is not done. Then both work on it, and each record is done once.
func TestRebalanceWithLateOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, log := memory(t, 3), new(dispatch.Log)
		for i := range 40 {
			log.Append(fmt.Sprint("k", i%4), nil)
		}
		hang := make(chan struct{})
		var mu sync.Mutex
		register := map[string]lease.Token{} // a store downstream that compares tokens
		written := map[int64]int{}
		write := func(job dispatch.Job) error {
			mu.Lock()
			defer mu.Unlock()
			if job.Lease.Token < register[job.Record.Domain] {
				return errors.New("refused: a smaller token")
			}
			register[job.Record.Domain] = job.Lease.Token
			written[job.Record.Offset]++
			return nil
		}
		var refused error
		seen := &events{}
		old := run(t, dispatch.Partition{Name: "old", Ledger: ledger, Source: log}, dispatch.Config{
			Observer: seen, MaxBuffered: 16,
			Handler: func(_ context.Context, job dispatch.Job) error {
				if job.Record.Offset == 4 {
					<-hang
					refused = write(job)
					return nil
				}
				return write(job)
			},
		})
		time.Sleep(time.Second)
		equal(t, "the old one's floor", old.Stats().Floor, 4)
		hanging, _ := ledger.Inspect(context.Background(), "k0")

		young := run(t, dispatch.Partition{Name: "new", Ledger: ledger, Source: log}, dispatch.Config{
			Grace:   5 * time.Second,
			Handler: func(_ context.Context, job dispatch.Job) error { return write(job) },
		})
		time.Sleep(time.Minute)
		equal(t, "reclaimed", young.Stats().Reclaimed, 1)
		equal(t, "the new one's floor", young.Stats().Committed, 40)
		close(hang)
		synctest.Wait()
		if refused == nil {
			t.Error("D6: the register took a write with a token that was reclaimed")
		}
		told := seen.of(dispatch.Fenced)
		if len(told) != 1 || told[0].Domain != "k0" || told[0].Offset != 4 || told[0].Token != hanging.Lease.Token ||
			!errors.Is(told[0].Err, lease.ErrLeaseNotFound) {
			t.Errorf("D6: told: %+v", told)
		}
		for i := range 100 { // more work, for both
			log.Append(fmt.Sprint("k", i%2), nil)
		}
		time.Sleep(time.Minute)
		s := old.Stats()
		equal(t, "lost", s.Lost, 1)
		equal(t, "floor of the old one", s.Floor, 140)
		if s.Buffered > 16 {
			t.Errorf("D6: %d buffered", s.Buffered)
		}
		old.mustStop(t)
		young.mustStop(t)
		equal(t, "committed", young.Stats().Committed, 140)
		for offset := range int64(140) {
			equal(t, fmt.Sprint("written: ", offset), written[offset], 1)
		}
	})
}

// A lease that somebody takes after the partition is ours gets Grace; then it is reclaimed, and its record is a suspect.
func TestForeignLeaseGetsGrace(t *testing.T) {
	for _, finishes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ledger, log := memory(t, 3), fill("x")
			seen := &events{}
			c := newCalls()
			r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{
				Observer: seen, Grace: 10 * time.Second,
				Handler: func(_ context.Context, job dispatch.Job) error {
					defer c.enter(job)()
					return nil
				},
			})
			synctest.Wait()
			ctx := context.Background()
			late, err := ledger.TryAcquire(ctx, "k", 1)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			log.Append("k", nil)
			log.Append("k", nil)
			time.Sleep(5 * time.Second)
			equal(t, "told", len(seen.of(dispatch.Foreign)), 1)
			same(t, "k", c.of("k"))
			if finishes {
				if _, err := ledger.Succeed(ctx, "k", late.Lease.Token); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
			r.mustStop(t)
			if finishes {
				same(t, "k", c.of("k"), 2)
				equal(t, "reclaimed", r.Stats().Reclaimed, 0)
				equal(t, "skipped", r.Stats().Skipped, 1)
			} else {
				same(t, "k", c.of("k"), 1, 2)
				equal(t, "reclaimed", r.Stats().Reclaimed, 1)
				equal(t, "after", c.times["k"][0].Sub(began), 10*time.Second)
			}
			equal(t, "floor", r.Stats().Floor, 3)
		})
	}
}

// With no retries left the late holder's record is a dead letter, with its payload: it has had its attempt.
func TestForeignLeaseGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, log := memory(t, 0), fill("x")
		var letters []dispatch.DeadLetter
		c := newCalls()
		r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{
			Grace: time.Second,
			Handler: func(_ context.Context, job dispatch.Job) error {
				defer c.enter(job)()
				return nil
			},
			DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
				letters = append(letters, letter)
				return nil
			},
		})
		synctest.Wait()
		if _, err := ledger.TryAcquire(context.Background(), "k", 1); err != nil {
			t.Fatal(err)
		}
		log.Append("k", []byte("it"))
		log.Append("k", nil)
		time.Sleep(time.Minute)
		r.mustStop(t)
		same(t, "k", c.of("k"), 2)
		if len(letters) != 1 || letters[0].Record.Offset != 1 || string(letters[0].Record.Payload) != "it" ||
			!errors.Is(letters[0].Err, dispatch.ErrDied) {
			t.Errorf("letters: %+v", letters)
		}
		equal(t, "floor", r.Stats().Floor, 3)
	})
}

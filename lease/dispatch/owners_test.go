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

// Taking a partition fences the former holder out, counts nothing, and goes on in the schedule of the retries.
func TestTakingFencesAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(memory(t, 9), fill("k"))
		began := time.Now()
		cfg := dispatch.Config{
			Backoff: time.Second, MaxBackoff: time.Hour, DrainTimeout: time.Millisecond,
			Handler: func(context.Context, dispatch.Job) error { return errors.New("never") },
		}
		r := run(t, dispatch.Partition{Ledger: p, Source: p}, cfg) // attempts at 0, 1, 3, 7 s
		time.Sleep(8 * time.Second)
		p.kill()
		_ = r.stop()

		// The next is due at 15 s all the same, and the one after 16 s later.
		partition := dispatch.Partition{Ledger: p.Ledger, Source: p.Source}
		r = r.again(t, partition, cfg)
		synctest.Wait()
		if held := r.seen.of(dispatch.Reclaimed); len(held) != 1 || held[0].RetryCount != 4 {
			t.Fatalf("D6: reclaimed: %+v", held)
		}
		_, tokens := r.at("k")
		if _, err := p.Ledger.Succeed(context.Background(), "k", tokens[0]); !errors.Is(err, lease.ErrTokenMismatch) {
			t.Errorf("D6: the former holder: %v", err)
		}
		time.Sleep(30 * time.Second)
		r.mustStop(t)
		same(t, "offsets", r.of("k"), 0, 0, 0, 0, 0, 0)
		equal(t, "D7: next attempt", r.times["k"][4].Sub(began), 15*time.Second)
		equal(t, "D7: and the one after", r.times["k"][5].Sub(began), 31*time.Second)

		// A long time later everything is due at once, not in another hour.
		time.Sleep(time.Hour * 5)
		before := time.Now()
		r = r.again(t, partition, cfg)
		time.Sleep(2 * time.Second)
		r.mustStop(t)
		equal(t, "D7: due at once", r.times["k"][6].Sub(before), 0)
	})
}

// Rebalance: the partition moves while a handler runs, and the source does not know it. The old owner is fenced out where it
// was at work, and commits nothing that is not done. Then both work on it, and each record is done once.
func TestRebalanceWithLateOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, log := memory(t, 3), spread(40, 4)
		hang := make(chan struct{})
		var mu sync.Mutex
		register := map[string]lease.Token{} // a store downstream that compares tokens
		written := map[int64]int{}
		refused := 0
		write := func(_ context.Context, job dispatch.Job) error {
			mu.Lock()
			defer mu.Unlock()
			if job.Lease.Token < register[job.Record.Domain] {
				refused++
				return errors.New("refused: a smaller token")
			}
			register[job.Record.Domain] = job.Lease.Token
			written[job.Record.Offset]++
			return nil
		}
		old := run(t, dispatch.Partition{Name: "old", Ledger: ledger, Source: log}, dispatch.Config{
			MaxBuffered: 16,
			Handler: func(ctx context.Context, job dispatch.Job) error {
				if job.Record.Offset == 4 {
					<-hang
					_ = write(ctx, job)
					return nil
				}
				return write(ctx, job)
			},
		})
		time.Sleep(time.Second)
		equal(t, "the old one's floor", old.Stats().Floor, 4)
		hanging, _ := ledger.Inspect(context.Background(), "k0")

		young := run(t, dispatch.Partition{Name: "new", Ledger: ledger, Source: log}, dispatch.Config{Grace: 5 * time.Second, Handler: write})
		time.Sleep(time.Minute)
		equal(t, "reclaimed", young.Stats().Reclaimed, 1)
		equal(t, "the new one's floor", young.Stats().Committed, 40)
		close(hang)
		synctest.Wait()
		equal(t, "D6: writes refused, with the token that was reclaimed", refused, 1)
		told := old.seen.of(dispatch.Fenced)
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

// A lease that somebody takes after the partition is ours gets Grace; then it is reclaimed, and its record is a suspect. With no
// retries left that is a dead letter, with its payload: it has had its attempt.
func TestForeignLeaseGetsGrace(t *testing.T) {
	for name, c := range map[string]struct {
		retries  int
		finishes bool
		handled  []int64
		letters  int
	}{
		"it finishes":     {retries: 3, finishes: true, handled: []int64{2}},
		"it does not":     {retries: 3, handled: []int64{1, 2}},
		"no retries left": {handled: []int64{2}, letters: 1},
	} {
		bubble(t, name, func(t *testing.T) {
			ledger, log, ctx := memory(t, c.retries), fill("x"), context.Background()
			r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{Grace: 10 * time.Second})
			synctest.Wait()
			late, err := ledger.TryAcquire(ctx, "k", 1)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			log.Append("k", []byte("it"))
			log.Append("k", nil)
			time.Sleep(5 * time.Second)
			equal(t, "told", len(r.seen.of(dispatch.Foreign)), 1)
			same(t, "k", r.of("k"))
			if c.finishes {
				if _, err := ledger.Succeed(ctx, "k", late.Lease.Token); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
			r.mustStop(t)
			same(t, "k", r.of("k"), c.handled...)
			equal(t, "D6: reclaimed", r.Stats().Reclaimed == 1, !c.finishes)
			equal(t, "skipped", r.Stats().Skipped == 1, c.finishes)
			if !c.finishes {
				equal(t, "after", r.times["k"][0].Sub(began), 10*time.Second)
			}
			if letters := r.letters(); len(letters) != c.letters || c.letters > 0 && (letters[0].Record.Offset != 1 ||
				string(letters[0].Record.Payload) != "it" || !errors.Is(letters[0].Err, dispatch.ErrDied)) {
				t.Errorf("D6: letters: %+v", letters)
			}
			equal(t, "floor", r.Stats().Floor, 3)
		})
	}
}

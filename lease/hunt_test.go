// SPDX-License-Identifier: Apache-2.0

// A hunt for two owners of one domain (L6): a record must not be evicted between the moment it is found and the one it is locked.

package lease_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/lease"
)

// hunt lets workers fight over few domains while a compactor keeps evicting them, and returns how often a lease was
// granted and the first breach of L1 or L9 seen: two owners of a domain at once, an owner whose token is refused, a
// token that does not rise.
func hunt(l lease.Ledger, rounds int) (grants int64, breach error) {
	const domains, workers = 3, 4
	var (
		offsets, granted           atomic.Int64
		owners                     [domains]atomic.Int64
		tokens                     [domains]atomic.Uint64
		stop                       atomic.Bool
		once                       sync.Once
		workersDone, compactorDone sync.WaitGroup
	)
	report := func(format string, args ...any) {
		once.Do(func() { breach = fmt.Errorf(format, args...) })
		stop.Store(true)
	}
	// carry works on offset, if it is granted, and returns the hint that follows.
	carry := func(d int, offset int64) (next int64, more bool) {
		domain := fmt.Sprint("d", d)
		a, err := l.TryAcquire(ctx, domain, offset)
		if err != nil || a.Status != lease.Acquired {
			return 0, false // it waits, it waits for its turn, or the floor has passed it
		}
		granted.Add(1)
		if n := owners[d].Add(1); n != 1 {
			report("%s has %d owners", domain, n)
		}
		if before := tokens[d].Swap(uint64(a.Lease.Token)); before >= uint64(a.Lease.Token) {
			report("%s: token %d after %d", domain, a.Lease.Token, before)
		}
		runtime.Gosched()
		owners[d].Add(-1)
		c, err := l.Succeed(ctx, domain, a.Lease.Token)
		if err != nil {
			report("%s: the owner is refused: %v", domain, err)
		}
		return c.Next, c.Status == lease.NextHint
	}
	for w := range workers {
		workersDone.Go(func() {
			for i := 0; i < rounds && !stop.Load(); i++ {
				d := (w + i) % domains
				for next, more := carry(d, offsets.Add(1)); more; {
					next, more = carry(d, next)
				}
			}
		})
	}
	compactorDone.Go(func() {
		for !stop.Load() {
			if err := l.Compact(ctx, offsets.Load()); err != nil {
				report("Compact: %v", err)
			}
			runtime.Gosched()
		}
	})
	workersDone.Wait()
	stop.Store(true)
	compactorDone.Wait()
	return granted.Load(), breach
}

func TestTheLockOutlivesTheRecord(t *testing.T) {
	defer goleak.VerifyNone(t)
	m := open(t, lease.Config{})
	grants, err := hunt(m, 20_000)
	if err = errors.Join(err, m.Audit()); err != nil {
		t.Fatalf("L6: %v", err)
	}
	if t.Logf("%d leases granted", grants); grants < 1000 {
		t.Fatalf("L6: only %d leases granted: a hunt that finds nothing", grants)
	}
}

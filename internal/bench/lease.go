// SPDX-License-Identifier: Apache-2.0

// Benchmark rows of the lease ledger in memory.

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/lease"
)

const (
	million     = 1_000_000
	offsetBlock = 1024
)

// leaseRows: acquire and complete a lease, on a ledger whose floor follows, beside the least that any ledger must do (two lookups
// and writes in one map under one mutex, and one read of the clock; no invariants).
func leaseRows() []row {
	const lag, never = 8 << 10, 2 * million
	var rows []row
	for _, goroutines := range sharings() {
		for _, c := range []struct {
			title        string
			domains, lag int
			most         float64
		}{
			{"acquire + succeed, 1,000 hot domains", 1000, lag, 1.5},
			{"acquire + succeed, 1,000,000 domains at random", million, lag, 1.5},
			// With this lag of the floor most domains stay in memory; the peer's map has nothing to walk.
			{"acquire + succeed, 1,000,000 domains that stay", million, never, 0},
		} {
			rows = append(rows, row{layer: "lease", title: c.title, goroutines: goroutines, variants: []variant{
				{"lease.Memory TryAcquire + Succeed", 0, onceAMillion(c.domains,
					func() instance { return newLedgerRun(c.domains, c.lag, goroutines).start })},
				{"a map under a mutex", c.most,
					onceAMillion(c.domains, func() instance { return newBareMap(c.domains).start })},
			}})
		}
	}
	return rows
}

// domainNames returns names as long as a UUID.
func domainNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(i)*2654435761, i)
	}
	return names
}

// onceAMillion makes a fresh instance each time, except with a million domains: filling those takes seconds, so all rounds of a
// row share one.
func onceAMillion(domains int, fresh func() instance) func() instance {
	if domains >= million {
		return sync.OnceValue(fresh)
	}
	return fresh
}

// ledgerRun drives a ledger like a consumer of one partition: rising offsets, random domains, and a floor that is raised every
// thousand offsets and lags behind. Each goroutine has its own domains, so every acquire is granted.
type ledgerRun struct {
	ledger     lease.Ledger
	names      []string
	lag        int64
	goroutines int
	starts     int          // identifies goroutines
	offsets    atomic.Int64 // handed out in blocks
	flooring   sync.Mutex   // guards the order of Compact calls: a floor must not fall
}

func newLedgerRun(domains, lag, goroutines int) *ledgerRun {
	r := &ledgerRun{ledger: must(lease.NewMemory(lease.Config{MaxRetries: lease.DefaultRetries})), names: domainNames(domains),
		lag: int64(lag), goroutines: goroutines}
	for range goroutines {
		operation := r.start()
		for range (3*domains + 32<<10) / goroutines {
			operation()
		}
	}
	return r
}

func (r *ledgerRun) start() func() {
	ctx, mine := context.Background(), r.starts%r.goroutines
	r.starts++
	rnd := rand.New(rand.NewPCG(uint64(r.starts), 1))
	var offset, end int64
	return func() {
		for {
			if offset == end {
				offset, end = r.block(ctx)
			}
			name := r.names[rnd.IntN(len(r.names)/r.goroutines)*r.goroutines+mine]
			a := must(r.ledger.TryAcquire(ctx, name, offset))
			offset++
			if a.Status == lease.Acquired {
				must(r.ledger.Succeed(ctx, name, a.Lease.Token))
				return
			}
			offset = end // the floor overtook a goroutine without a processor: start a new block
		}
	}
}

// block hands out the next offsets and raises the floor.
func (r *ledgerRun) block(ctx context.Context) (from, to int64) {
	r.flooring.Lock()
	defer r.flooring.Unlock()
	to = r.offsets.Add(offsetBlock)
	must(0, r.ledger.Compact(ctx, to-offsetBlock-r.lag))
	return to - offsetBlock, to
}

// bareMap is the peer: the data of a lease in a map under a mutex.
type bareMap struct {
	mu      sync.Mutex
	records map[string]bareRecord
	names   []string
	starts  uint64
}

type bareRecord struct{ offset, token, acquiredAt, retries int64 }

func newBareMap(domains int) *bareMap {
	b := &bareMap{records: map[string]bareRecord{}, names: domainNames(domains)}
	for _, name := range b.names {
		b.records[name] = bareRecord{}
	}
	return b
}

func (b *bareMap) start() func() {
	b.starts++
	rnd := rand.New(rand.NewPCG(b.starts, 1))
	offset := int64(0)
	return func() {
		name := b.names[rnd.IntN(len(b.names))]
		now := time.Now().UnixNano()
		b.mu.Lock()
		r := b.records[name]
		r.offset, r.token, r.acquiredAt = offset, r.token+1, now
		b.records[name] = r
		b.mu.Unlock()
		b.mu.Lock()
		r = b.records[name]
		r.retries++
		b.records[name] = r
		b.mu.Unlock()
		offset++
	}
}

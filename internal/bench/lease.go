// SPDX-License-Identifier: Apache-2.0

// Benchmark rows of the lease ledger in memory.

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
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
			title   string
			domains int
			lag     int64
			most    float64
		}{
			{"acquire + succeed, 1,000 hot domains", 1000, lag, 1.5},
			{"acquire + succeed, 1,000,000 domains at random", million, lag, 1.5},
			// With this lag of the floor most domains stay in memory; the peer's map has nothing to walk.
			{"acquire + succeed, 1,000,000 domains that stay", million, never, 0},
		} {
			rows = append(rows, row{layer: "lease", title: c.title, goroutines: goroutines, variants: []variant{
				{"lease.Memory TryAcquire + Succeed", 0, onceAMillion(c.domains,
					func() instance { return memory(c.domains, c.lag, goroutines) })},
				{"a map under a mutex", c.most, onceAMillion(c.domains, func() instance { return bareMap(c.domains) })},
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

// memory drives a ledger like a consumer of one partition: rising offsets, random domains, and a floor that is raised every
// thousand offsets and lags behind. Each goroutine has its own domains, so every acquire is granted.
func memory(domains int, lag int64, goroutines int) instance {
	ctx, names := context.Background(), domainNames(domains)
	ledger := must(lease.NewMemory(lease.Config{MaxRetries: lease.DefaultRetries}))
	starts := 0
	var mu sync.Mutex // guards the offset that is handed out next, and the order of floors, which must not fall
	var next int64
	start := func() func() {
		mine := starts % goroutines
		starts++
		rnd := rand.New(rand.NewPCG(uint64(starts), 1))
		var offset, end int64
		return func() {
			for {
				if offset == end {
					mu.Lock()
					offset, end, next = next, next+offsetBlock, next+offsetBlock
					must(0, ledger.Compact(ctx, offset-lag))
					mu.Unlock()
				}
				name := names[rnd.IntN(len(names)/goroutines)*goroutines+mine]
				a := must(ledger.TryAcquire(ctx, name, offset))
				offset++
				if a.Status == lease.Acquired {
					must(ledger.Succeed(ctx, name, a.Lease.Token))
					return
				}
				offset = end // the floor overtook a goroutine without a processor: start a new block
			}
		}
	}
	for range goroutines {
		operation := start()
		for range (3*domains + 32<<10) / goroutines {
			operation()
		}
	}
	return start
}

// bareMap is the peer: the data of a lease in a map under a mutex.
func bareMap(domains int) instance {
	type record struct{ offset, token, acquiredAt, retries int64 }
	var mu sync.Mutex // guards records
	records, names, starts := map[string]record{}, domainNames(domains), uint64(0)
	for _, name := range names {
		records[name] = record{}
	}
	return func() func() {
		starts++
		rnd, offset := rand.New(rand.NewPCG(starts, 1)), int64(0)
		return func() {
			name, now := names[rnd.IntN(len(names))], time.Now().UnixNano()
			mu.Lock()
			r := records[name]
			r.offset, r.token, r.acquiredAt = offset, r.token+1, now
			records[name] = r
			mu.Unlock()
			mu.Lock()
			r = records[name]
			r.retries++
			records[name] = r
			mu.Unlock()
			offset++
		}
	}
}

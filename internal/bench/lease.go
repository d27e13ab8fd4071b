// Benchmark rows of the lease ledger in memory.

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/lease"
)

func leaseRows() []row {
	const lag, never = 8 << 10, 2_000_000
	var rows []row
	for _, workers := range []int{1, runtime.GOMAXPROCS(0)} {
		rows = append(rows,
			cycleRow("acquire + succeed, 1,000 hot domains", 1000, lag, workers, 1.5),
			cycleRow("acquire + succeed, 1,000,000 domains at random", 1_000_000, lag, workers, 1.5),
			// With this lag of the floor most domains stay in memory; the peer's map has nothing to walk.
			cycleRow("acquire + succeed, 1,000,000 domains that stay", 1_000_000, never, workers, 0),
		)
	}
	return append(rows, scaleRow(1000, lag), scaleRow(1_000_000, lag))
}

// cycleRow: acquire and complete a lease, on a ledger whose floor follows, beside the least that any ledger must do: two
// lookups and writes in one map under one mutex, and one read of the clock. The peer keeps no invariants.
func cycleRow(title string, domains, lag, workers int, most float64) row {
	names := domainNames(domains)
	ours := onceAMillion(domains, func() *ledgerRun { return newLedgerRun(names, lag, workers) })
	bare := onceAMillion(domains, func() *bareMap { return newBareMap(names) })
	return row{"lease", title, workers > 1,
		variant{"lease.Memory TryAcquire + Succeed", func() func(int) { return ours().loop }},
		[]peer{{variant{"two lookups-and-writes in a map, one mutex", func() func(int) { return bare().loop }}, most}},
	}
}

// scaleRow: the same work by all cores and by one, as wall time per operation. On two cores half the time would be perfect.
func scaleRow(domains, lag int) row {
	cores := runtime.GOMAXPROCS(0)
	names := domainNames(domains)
	all := onceAMillion(domains, func() *ledgerRun { return newLedgerRun(names, lag, cores) })
	one := onceAMillion(domains, func() *ledgerRun { return newLedgerRun(names, lag, 1) })
	most := 0.0
	if cores == 2 {
		most = 1 / 1.5
	}
	return row{"lease", fmt.Sprintf("acquire + succeed, %d goroutines against one, %d domains", cores, domains), false,
		variant{fmt.Sprintf("%d goroutines", cores), func() func(int) {
			loop := all().loop
			return func(n int) {
				var group sync.WaitGroup
				for range cores {
					group.Go(func() { loop(n / cores) })
				}
				group.Wait()
			}
		}},
		[]peer{{variant{"one goroutine", func() func(int) { return one().loop }}, most}},
	}
}

func newLedger() *lease.Memory {
	l, err := lease.NewMemory(lease.Config{MaxRetries: lease.DefaultRetries})
	if err != nil {
		exit("%v", err)
	}
	return l
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
func onceAMillion[T any](domains int, fresh func() T) func() T {
	if domains >= 1_000_000 {
		return sync.OnceValue(fresh)
	}
	return fresh
}

// ledgerRun drives a ledger like a consumer of one partition: rising offsets, random domains, and a floor that is raised every
// thousand offsets and lags behind. Each worker has its own domains, so every acquire is granted.
type ledgerRun struct {
	ledger   *lease.Memory
	names    []string
	lag      int64
	workers  int
	loops    atomic.Int64 // number of loops begun; identifies workers
	offsets  atomic.Int64 // handed out in blocks
	flooring sync.Mutex   // guards the order of Compact calls: a floor must not fall
}

const offsetBlock = 1024

func newLedgerRun(names []string, lag, workers int) *ledgerRun {
	r := &ledgerRun{ledger: newLedger(), names: names, lag: int64(lag), workers: workers}
	for range workers {
		r.loop((3*len(names) + 32<<10) / workers)
	}
	return r
}

func (r *ledgerRun) loop(n int) {
	ctx := context.Background()
	id := r.loops.Add(1)
	mine := int(id) % r.workers
	rnd := rand.New(rand.NewPCG(uint64(id), 1))
	var offset, end int64
	for n > 0 {
		if offset == end {
			offset, end = r.block(ctx)
		}
		name := r.names[rnd.IntN(len(r.names)/r.workers)*r.workers+mine]
		a, err := r.ledger.TryAcquire(ctx, name, offset)
		offset++
		if err != nil {
			exit("%v", err)
		}
		if a.Status != lease.Acquired { // the floor overtook a worker without a processor: start a new block
			offset = end
			continue
		}
		if _, err := r.ledger.Succeed(ctx, name, a.Lease.Token); err != nil {
			exit("%v", err)
		}
		n--
	}
}

// block hands out the next offsets and raises the floor.
func (r *ledgerRun) block(ctx context.Context) (from, to int64) {
	r.flooring.Lock()
	defer r.flooring.Unlock()
	to = r.offsets.Add(offsetBlock)
	if err := r.ledger.Compact(ctx, to-offsetBlock-r.lag); err != nil {
		exit("%v", err)
	}
	return to - offsetBlock, to
}

// bareMap is the peer: the data of a lease in a map under a mutex.
type bareMap struct {
	mu      sync.Mutex
	records map[string]bareRecord
	names   []string
	loops   atomic.Uint64
}

type bareRecord struct{ offset, token, acquiredAt, retries int64 }

func newBareMap(names []string) *bareMap {
	b := &bareMap{records: map[string]bareRecord{}, names: names}
	for _, name := range names {
		b.records[name] = bareRecord{}
	}
	return b
}

func (b *bareMap) loop(n int) {
	rnd := rand.New(rand.NewPCG(b.loops.Add(1), 1))
	for i := range int64(n) {
		name := b.names[rnd.IntN(len(b.names))]
		now := time.Now().UnixNano()
		b.mu.Lock()
		r := b.records[name]
		r.offset, r.token, r.acquiredAt = i, r.token+1, now
		b.records[name] = r
		b.mu.Unlock()
		b.mu.Lock()
		r = b.records[name]
		r.retries++
		b.records[name] = r
		b.mu.Unlock()
	}
}

// SPDX-License-Identifier: Apache-2.0

// Pools: connections and other bounded resources that know their own use and queue.

package monitor

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Pool is a bounded resource that knows its own use and queue: the connections of a database, tokens, workers. If nobody asks the
// pool, only execution times show that executions wait for it.
type Pool struct {
	// Name names the pool in decisions, metrics and the console: 1 to 64 bytes, unique within a Sampler.
	Name string
	// Part names the part of the program that alone uses the pool, a compartment, whose limit then follows the pool; "": all may
	// use it.
	Part string
	// Stats returns the pool's use at the instant of the call. It is called once a sample, unless the call before has not
	// returned, on a goroutine of its own, and should return within microseconds.
	Stats func() PoolStats
}

// PoolStats is the use of a pool at one instant: InUse and Max, or Waiting, or all three. What is missing is estimated.
type PoolStats struct {
	// InUse of at most Max connections are in use, 0 <= InUse <= Max; Max 0: without a bound, or unknown.
	InUse, Max int
	// Waiting is the number of tasks that wait for a connection now; not OK: unknown.
	Waiting Reading
}

// PoolReading is the reading of a pool for a sample.
type PoolReading struct {
	Name, Part string
	PoolStats
	// Problem says why this reading must not be used; "" if it may: "panicked", "blocked" (no answer in time, or the previous
	// call has not returned), or "invalid" (a negative number, or more in use than there are).
	Problem string
}

// poolTimeout is how long a sample waits for the pools, all together.
const poolTimeout = 20 * time.Millisecond

// maxPools bounds what a sample reads.
const maxPools = 64

// poolReader asks one pool.
type poolReader struct {
	Pool
	asked  atomic.Bool // a call has not returned
	answer chan PoolReading
}

// poolReaders checks a configuration of pools.
func poolReaders(pools []Pool) ([]*poolReader, error) {
	if len(pools) > maxPools {
		return nil, invalidField("Pools", len(pools), fmt.Sprintf("at most %d pools", maxPools))
	}
	var all []*poolReader
	names := map[string]bool{}
	for i, p := range pools {
		field := fmt.Sprintf("Pools[%d].", i)
		switch {
		case p.Name == "" || len(p.Name) > 64:
			return nil, invalidField(field+"Name", fmt.Sprintf("%.70q", p.Name), "1 to 64 bytes")
		case names[p.Name]:
			return nil, invalidField(field+"Name", fmt.Sprintf("%q", p.Name), "a name that no other pool has")
		case p.Stats == nil:
			return nil, invalidField(field+"Stats", "nil", "a function")
		}
		names[p.Name] = true
		all = append(all, &poolReader{Pool: p, answer: make(chan PoolReading, 1)})
	}
	return all, nil
}

// readPools asks all pools at once and waits for them for poolTimeout at most. It allocates, and starts a goroutine for each.
func readPools(pools []*poolReader) []PoolReading {
	if len(pools) == 0 {
		return nil
	}
	for _, p := range pools {
		p.ask()
	}
	late := make(chan struct{})
	defer time.AfterFunc(poolTimeout, func() { close(late) }).Stop()
	all := make([]PoolReading, len(pools))
	for i, p := range pools {
		all[i] = PoolReading{Name: p.Name, Part: p.Part, Problem: "blocked"}
		select {
		case all[i] = <-p.answer:
		case <-late:
			select {
			case all[i] = <-p.answer:
			default:
			}
		}
		all[i].check()
	}
	return all
}

// ask starts a call, unless the previous one has not returned. The answer of a call that came too late is dropped.
func (p *poolReader) ask() {
	if !p.asked.CompareAndSwap(false, true) {
		return
	}
	select {
	case <-p.answer:
	default:
	}
	go func() {
		r := PoolReading{Name: p.Name, Part: p.Part, Problem: "panicked"}
		defer func() {
			_ = recover()
			p.answer <- r
			p.asked.Store(false)
		}()
		r.PoolStats = p.Stats()
		r.Problem = ""
	}()
}

// check drops the numbers of a reading that must not be used.
func (r *PoolReading) check() {
	if r.Problem == "" {
		if w := r.Waiting.Value; r.InUse < 0 || r.Max < 0 || r.Max > 0 && r.InUse > r.Max ||
			r.Waiting.OK && !(w >= 0 && w <= math.MaxInt32) {
			r.Problem = "invalid"
		}
	}
	if r.Problem != "" {
		*r = PoolReading{Name: r.Name, Part: r.Part, Problem: r.Problem}
	}
}

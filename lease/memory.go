// SPDX-License-Identifier: Apache-2.0

// The ledger in memory: each call is one visit to one stripe.

package lease

import (
	"context"
	"hash/maphash"
	"iter"
	"math"
	"runtime"
	"sync"

	"github.com/stopbank/stopbank/lease/internal/nilcheck"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// DefaultRetries suits most work as MaxRetries, in Config and in durable.Config, where it has to be asked for: about 80 s
// of retries with the default pauses of package dispatch.
const DefaultRetries = 10

// Config configures a ledger in memory. The zero value is a ledger without retries and with an unbounded backlog.
type Config struct {
	// MaxRetries is how many Fail calls of a lease lead to a retry; the next one gives the offset up, so an offset gets
	// MaxRetries+1 attempts. 0 to 2147483647; 0: no retries, the first failure is final. DefaultRetries last about 80 s with
	// the backoff of a dispatcher.
	MaxRetries int
	// MaxBacklog bounds the waiting offsets of one domain. 0: unbounded. Not negative.
	MaxBacklog int
	// Observer, when not nil, receives every decision.
	Observer Observer
}

// memory keeps the states of a ledger in this process.
type memory struct {
	seed maphash.Seed
	// stripes are a power of two, sixteen or more for each core that NewMemory found: of calls on different domains one in
	// sixteen meets another's lock when every core does nothing else. More of them cost cache, which costs every call.
	stripes []stripe

	// compacting serialises Compact and guards floor. It is taken before a stripe's lock, never after one.
	compacting sync.Mutex
	floor      int64
}

var _ step.Engine = (*memory)(nil)

// NewMemory returns an empty ledger in the memory of this process. It starts no goroutine, and there is nothing to close.
//
// The ledger's calls allocate only to grow, for an error, and for the copies that Ready, Held and Inspect make. They block
// for as long as another call on the same stripe of the domains takes: a few hundred nanoseconds; longer while Inspect copies
// a long backlog, Compact frees a large stripe, or a backlog is rehashed (a few tenths of a second for a million offsets).
// Ready and Held take one lock per stripe. The time of Compact grows with the memory that it frees, not with the number of
// domains; calls on other domains see the new floor before it returns, in no particular order.
//
// Error: *InvalidError naming the field.
func NewMemory(cfg Config) (Ledger, error) {
	if cfg.MaxRetries < 0 || cfg.MaxRetries > math.MaxInt32 {
		return nil, &InvalidError{Field: "Config.MaxRetries", Value: cfg.MaxRetries, Allowed: "0 (no retries) to 2147483647"}
	}
	if cfg.MaxBacklog < 0 {
		return nil, &InvalidError{Field: "Config.MaxBacklog", Value: cfg.MaxBacklog, Allowed: "0 (unbounded) or more"}
	}
	if typed := nilcheck.Optional(cfg.Observer); typed != "" {
		return nil, &InvalidError{Field: "Config.Observer", Value: typed, Allowed: "nil (no observer) or an observer"}
	}
	stripes := 1
	for stripes < 16*runtime.GOMAXPROCS(0) {
		stripes *= 2
	}
	m := &memory{seed: maphash.MakeSeed(), stripes: make([]stripe, stripes), floor: math.MinInt64}
	for i := range m.stripes {
		st := &m.stripes[i]
		st.seed, st.floor, st.last, st.stride = m.seed, math.MinInt64, uint64(i), uint64(stripes)
	}
	return FromEngine(m, cfg), nil
}

// Do implements step.Engine.
func (m *memory) Do(_ context.Context, op step.Op) (r step.Result, err error) {
	st, hash := m.stripe(op.Domain)
	st.mu.Lock()
	st.stepLocked(&op, hash, &r)
	st.mu.Unlock()
	return r, nil
}

func (m *memory) stripe(domain string) (*stripe, uint32) {
	hash := maphash.String(m.seed, domain)
	// The stripe takes the top bits and its table the low ones, so that the one does not thin out the other.
	return &m.stripes[hash>>32&uint64(len(m.stripes)-1)], uint32(hash)
}

// sweepBatch is how many domains Compact visits in one hold of a stripe's lock.
const sweepBatch = 32

// Compact implements step.Engine. It takes each stripe's lock in turn.
func (m *memory) Compact(_ context.Context, floor int64) error {
	m.compacting.Lock()
	defer m.compacting.Unlock()
	if floor < m.floor {
		return &step.FloorError{Floor: m.floor, Got: floor}
	}
	m.floor = floor
	for i := range m.stripes {
		st := &m.stripes[i]
		for done := false; !done; {
			st.mu.Lock()
			done = st.sweepLocked(floor, sweepBatch)
			st.mu.Unlock()
		}
	}
	return nil
}

// Inspect implements step.Engine.
func (m *memory) Inspect(_ context.Context, domain string) (step.Snapshot, error) {
	st, hash := m.stripe(domain)
	st.mu.Lock()
	defer st.mu.Unlock()
	var s step.State
	if slot, ok := st.find(hash, domain); ok {
		s = st.record(slot).state
	}
	return s.Snapshot(st.floor), nil
}

// List implements step.Engine, a stripe at a time: copied under the stripe's lock, yielded under none.
func (m *memory) List(ctx context.Context, index step.Index) iter.Seq2[step.Item, error] {
	return func(yield func(step.Item, error) bool) {
		var copied []step.Item
		for i := range m.stripes {
			copied = m.stripes[i].appendList(copied[:0], index)
			for _, item := range copied {
				if err := ctx.Err(); err != nil {
					yield(step.Item{}, err)
					return
				}
				if !yield(item, nil) {
					return
				}
			}
		}
		if err := ctx.Err(); err != nil {
			yield(step.Item{}, err)
		}
	}
}

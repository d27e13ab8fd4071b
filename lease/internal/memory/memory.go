// SPDX-License-Identifier: Apache-2.0

// Package memory keeps the states of a ledger in this process: it is the engine of lease.NewMemory, and what a ledger over a
// journal has beside its store. Each call is one visit to one stripe.
package memory

import (
	"context"
	"hash/maphash"
	"iter"
	"math"
	"sync"

	"github.com/stopbank/stopbank/lease/internal/step"
)

// Engine keeps the states of a ledger in this process.
type Engine struct {
	seed    maphash.Seed
	stripes []stripe

	// compacting serialises Compact and guards floor. It is taken before a stripe's lock, never after one.
	compacting sync.Mutex
	floor      int64
}

var _ step.Engine = (*Engine)(nil)

// New returns an engine without domains, whose tokens are all above token: each stripe draws every stripes-th of them. stripes is a
// power of two.
func New(token uint64, stripes int) *Engine {
	m := &Engine{seed: maphash.MakeSeed(), stripes: make([]stripe, stripes), floor: math.MinInt64}
	for i := range m.stripes {
		st := &m.stripes[i]
		st.seed, st.floor, st.last, st.stride = m.seed, math.MinInt64, token+uint64(i), uint64(stripes)
	}
	return m
}

// Do implements step.Engine.
func (m *Engine) Do(_ context.Context, op step.Op) (r step.Result, err error) {
	st, hash := m.stripe(op.Domain)
	st.mu.Lock()
	st.stepLocked(&op, hash, &r)
	st.mu.Unlock()
	return r, nil
}

func (m *Engine) stripe(domain string) (*stripe, uint32) {
	hash := maphash.String(m.seed, domain)
	// The stripe takes the top bits and its table the low ones, so that the one does not thin out the other.
	return &m.stripes[hash>>32&uint64(len(m.stripes)-1)], uint32(hash)
}

// sweepBatch is how many domains Compact visits in one hold of a stripe's lock.
const sweepBatch = 32

// Compact implements step.Engine. It takes each stripe's lock in turn.
func (m *Engine) Compact(_ context.Context, floor int64) error {
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
func (m *Engine) Inspect(_ context.Context, domain string) (step.Snapshot, error) {
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
func (m *Engine) List(ctx context.Context, index step.Index) iter.Seq2[step.Item, error] {
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

// Restore sets the state of a domain that the engine does not have.
func (m *Engine) Restore(domain string, s step.State) {
	st, hash := m.stripe(domain)
	st.mu.Lock()
	defer st.mu.Unlock()
	slot := st.insert(hash, domain, s)
	st.addToList(s.Index(), slot)
	st.schedule(slot)
}

// AppendLive appends a domain's lease and backlog to b, as State.AppendLive does.
func (m *Engine) AppendLive(b []byte, domain string) []byte {
	st, hash := m.stripe(domain)
	st.mu.Lock()
	defer st.mu.Unlock()
	var s step.State
	if slot, ok := st.find(hash, domain); ok {
		s = st.record(slot).state
	}
	return s.AppendLive(b)
}

// DoneOffsets calls add with the offsets that are processed and those that are failed, a domain at a time, under the lock of a
// stripe. Some of those below the floor are among them.
func (m *Engine) DoneOffsets(add func(processed, failed []int64)) {
	for i := range m.stripes {
		st := &m.stripes[i]
		st.mu.Lock()
		for _, entry := range st.index {
			if entry != 0 {
				add(st.record(slotIn(entry)).state.Done())
			}
		}
		st.mu.Unlock()
	}
}

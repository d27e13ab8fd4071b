// SPDX-License-Identifier: Apache-2.0

// The reference of a Store, in memory.

package durable

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
)

// memStore is a Store in memory.
type memStore struct {
	mu      sync.Mutex // guards records; held for the length of a map access
	records map[string]memRecord
}

type memRecord struct {
	state   []byte
	version uint64
	index   Index
}

// NewMemStore returns an empty Store in memory, gone with the process: the reference for engines, and a store for tests.
func NewMemStore() Store { return new(memStore) }

func (m *memStore) Load(ctx context.Context, name string) ([]byte, uint64, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[name]
	return slices.Clone(r.state), r.version, nil
}

func (m *memStore) Swap(ctx context.Context, name string, old uint64, state []byte, index Index) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNotApplied, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if version := m.records[name].version; version != old {
		return 0, fmt.Errorf("%w: %q has version %d, not %d", ErrConflict, name, version, old)
	}
	if m.records == nil {
		m.records = map[string]memRecord{}
	}
	m.records[name] = memRecord{slices.Clone(state), old + 1, index}
	return old + 1, nil
}

func (m *memStore) Limit(string) int { return 0 }

func (m *memStore) List(ctx context.Context, index Index) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		m.mu.Lock()
		var names []string
		for name, r := range m.records {
			if r.index == index {
				names = append(names, name)
			}
		}
		m.mu.Unlock()
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				yield("", err)
				return
			}
			if !yield(name, nil) {
				return
			}
		}
	}
}

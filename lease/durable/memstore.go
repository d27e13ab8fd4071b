package durable

// This file is the reference of a Store, in memory.

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
)

// MemStore is a Store in memory, gone with the process: the reference for engines, and a store for tests. The zero
// MemStore is empty and ready. A MemStore must not be copied.
type MemStore struct {
	mu      sync.Mutex // guards records; held for the length of a map access
	records map[string]memRecord
}

type memRecord struct {
	state   []byte
	version uint64
	index   Index
}

// Load implements Store.
func (m *MemStore) Load(ctx context.Context, name string) ([]byte, uint64, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[name]
	return slices.Clone(r.state), r.version, nil
}

// Swap implements Store.
func (m *MemStore) Swap(ctx context.Context, name string, old uint64, state []byte, index Index) (uint64, error) {
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

// Limit implements Store: there is none.
func (m *MemStore) Limit(string) int { return 0 }

// List implements Store.
func (m *MemStore) List(ctx context.Context, index Index) iter.Seq2[string, error] {
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

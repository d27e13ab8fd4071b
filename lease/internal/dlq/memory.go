// SPDX-License-Identifier: Apache-2.0

// A store that lives as long as its process, for tests.

package dlq

import (
	"context"
	"iter"
	"sync"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/clip"
)

// Memory is a deadletter.Store in memory, for tests. It must not be copied. The zero value is ready, but cannot
// replay.
type Memory struct {
	// Append appends a record to the source of a partition. It is called by one goroutine at a time, and blocks the
	// Memory's other calls. Set it before the first use.
	Append func(ctx context.Context, partition string, record dispatch.Record) error

	mu      sync.Mutex
	letters map[deadletter.ID]deadletter.Letter
	gone    map[deadletter.ID]deadletter.Fate
}

var _ deadletter.Store = (*Memory)(nil)

// Put implements Store.
func (m *Memory) Put(ctx context.Context, letter deadletter.Letter) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	id := letter.ID()
	if _, there := m.letters[id]; there || m.gone[id] != "" {
		return nil
	}
	if m.letters == nil {
		m.letters, m.gone = map[deadletter.ID]deadletter.Letter{}, map[deadletter.ID]deadletter.Fate{}
	}
	m.letters[id] = letter
	return nil
}

// List implements Store.
func (m *Memory) List(ctx context.Context, filter deadletter.Filter) iter.Seq2[deadletter.Letter, error] {
	return func(yield func(deadletter.Letter, error) bool) {
		if err := Check(filter); err != nil {
			yield(deadletter.Letter{}, err)
			return
		}
		var all []*deadletter.Letter
		m.mu.Lock()
		for _, letter := range m.letters {
			all = append(all, &letter)
		}
		m.mu.Unlock()
		Sorted(all, filter)(func(letter deadletter.Letter, err error) bool {
			if err == nil && ctx.Err() != nil {
				letter, err = deadletter.Letter{}, ctx.Err()
			}
			return yield(letter, err) && err == nil
		})
	}
}

// Get implements Store.
func (m *Memory) Get(_ context.Context, id deadletter.ID) (deadletter.Letter, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.findLocked(id)
}

func (m *Memory) findLocked(id deadletter.ID) (deadletter.Letter, error) {
	letter, there := m.letters[id]
	if !there {
		fate := m.gone[id]
		if fate == "" {
			fate = deadletter.Unknown
		}
		return deadletter.Letter{}, &deadletter.NotDeadError{ID: id, Fate: fate}
	}
	return letter, nil
}

// Park implements Store.
func (m *Memory) Park(_ context.Context, id deadletter.ID, note string) error {
	return m.mark(id, true, clip.Text(note))
}

// Unpark implements Store.
func (m *Memory) Unpark(_ context.Context, id deadletter.ID) error { return m.mark(id, false, "") }

func (m *Memory) mark(id deadletter.ID, parked bool, note string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	letter, err := m.findLocked(id)
	if err != nil {
		return err
	}
	letter.Parked, letter.Note = parked, note
	m.letters[id] = letter
	return nil
}

// Replay implements Store: once.
func (m *Memory) Replay(ctx context.Context, id deadletter.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	letter, err := m.findLocked(id)
	if err != nil {
		return err
	}
	if m.Append == nil {
		return &lease.InvalidError{Field: "Memory.Append", Value: "nil", Allowed: "a function that takes the replayed records"}
	}
	if err := m.Append(ctx, letter.Partition, Replay(letter)); err != nil {
		return err
	}
	m.dropLocked(id, deadletter.Replayed)
	return nil
}

// Discard implements Store.
func (m *Memory) Discard(_ context.Context, id deadletter.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.findLocked(id); err != nil {
		return err
	}
	m.dropLocked(id, deadletter.Discarded)
	return nil
}

func (m *Memory) dropLocked(id deadletter.ID, fate deadletter.Fate) {
	delete(m.letters, id)
	m.gone[id] = fate
}

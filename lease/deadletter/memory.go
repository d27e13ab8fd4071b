package deadletter

// This file is a store that lives as long as its process, for tests and examples.

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// Memory is a Store in memory, for tests and examples. It must not be copied. The zero value is ready, but cannot
// replay.
type Memory struct {
	// Append appends a record to the source of a partition. It is called by one goroutine at a time, and blocks the
	// Memory's other calls. Set it before the first use.
	Append func(ctx context.Context, partition string, record dispatch.Record) error

	mu      sync.Mutex
	letters map[ID]Letter
	gone    map[ID]Fate
}

var _ Store = (*Memory)(nil)

// Put implements Store.
func (m *Memory) Put(ctx context.Context, letter Letter) error {
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
		m.letters, m.gone = map[ID]Letter{}, map[ID]Fate{}
	}
	m.letters[id] = letter
	return nil
}

// List implements Store.
func (m *Memory) List(ctx context.Context, filter Filter) iter.Seq2[Letter, error] {
	return func(yield func(Letter, error) bool) {
		if err := filter.Check(); err != nil {
			yield(Letter{}, err)
			return
		}
		var all []*Letter
		m.mu.Lock()
		for _, letter := range m.letters {
			all = append(all, &letter)
		}
		m.mu.Unlock()
		Sorted(all, filter)(func(letter Letter, err error) bool {
			if err == nil && ctx.Err() != nil {
				letter, err = Letter{}, ctx.Err()
			}
			return yield(letter, err) && err == nil
		})
	}
}

// Sorted returns the letters that match a filter as List does: in order, without Payload and Headers, at most its Limit.
// It sorts the slice in place.
func Sorted(letters []*Letter, filter Filter) iter.Seq2[Letter, error] {
	slices.SortFunc(letters, func(a, b *Letter) int {
		return cmp.Or(strings.Compare(a.Partition, b.Partition), cmp.Compare(a.Record.Offset, b.Record.Offset))
	})
	return func(yield func(Letter, error) bool) {
		n := 0
		for _, at := range letters {
			letter := *at
			if !filter.Matches(letter) {
				continue
			}
			if n++; filter.Limit > 0 && n > filter.Limit {
				return
			}
			letter.Record.Payload, letter.Record.Headers = nil, nil
			if !yield(letter, nil) {
				return
			}
		}
	}
}

// Get implements Store.
func (m *Memory) Get(_ context.Context, id ID) (Letter, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.find(id)
}

// find has the lock.
func (m *Memory) find(id ID) (Letter, error) {
	letter, there := m.letters[id]
	if !there {
		fate := m.gone[id]
		if fate == "" {
			fate = Unknown
		}
		return Letter{}, &NotDeadError{ID: id, Fate: fate}
	}
	return letter, nil
}

// Park implements Store.
func (m *Memory) Park(_ context.Context, id ID, note string) error {
	return m.mark(id, true, Clip(note))
}

// Unpark implements Store.
func (m *Memory) Unpark(_ context.Context, id ID) error { return m.mark(id, false, "") }

func (m *Memory) mark(id ID, parked bool, note string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	letter, err := m.find(id)
	if err != nil {
		return err
	}
	letter.Parked, letter.Note = parked, note
	m.letters[id] = letter
	return nil
}

// Replay implements Store: once.
func (m *Memory) Replay(ctx context.Context, id ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	letter, err := m.find(id)
	if err != nil {
		return err
	}
	if m.Append == nil {
		return invalidField("Memory.Append", "nil", "a function that takes the replayed records")
	}
	if err := m.Append(ctx, letter.Partition, letter.Replay()); err != nil {
		return err
	}
	m.drop(id, Replayed)
	return nil
}

// Discard implements Store.
func (m *Memory) Discard(_ context.Context, id ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.find(id); err != nil {
		return err
	}
	m.drop(id, Discarded)
	return nil
}

// drop has the lock.
func (m *Memory) drop(id ID, fate Fate) {
	delete(m.letters, id)
	m.gone[id] = fate
}

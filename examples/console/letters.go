// Dead letters in memory, enough for a console and a test. A service keeps them in a store of leasepg, leasenats or leasekafka.

package console

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/stopbank/stopbank/lease/deadletter"
)

// memory keeps letters. The calls that the service does not make are those of its nil Store.
type memory struct {
	deadletter.Store
	mu      sync.Mutex // guards letters
	letters map[deadletter.ID]deadletter.Letter
}

// Put implements deadletter.Store.
func (m *memory) Put(_ context.Context, letter deadletter.Letter) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.letters == nil {
		m.letters = map[deadletter.ID]deadletter.Letter{}
	}
	letter.Record.Payload, letter.Record.Headers = nil, nil // nobody will ask for them
	m.letters[letter.ID()] = letter
	return nil
}

// List implements deadletter.Store, without filters.
func (m *memory) List(context.Context, deadletter.Filter) iter.Seq2[deadletter.Letter, error] {
	m.mu.Lock()
	all := slices.Collect(maps.Values(m.letters))
	m.mu.Unlock()
	slices.SortFunc(all, func(a, b deadletter.Letter) int { return cmp.Compare(a.Record.Offset, b.Record.Offset) })
	return func(yield func(deadletter.Letter, error) bool) {
		for _, letter := range all {
			if !yield(letter, nil) {
				return
			}
		}
	}
}

// Park implements deadletter.Store.
func (m *memory) Park(_ context.Context, id deadletter.ID, note string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	letter, ok := m.letters[id]
	if !ok {
		return &deadletter.NotDeadError{ID: id, Fate: deadletter.Unknown}
	}
	letter.Parked, letter.Note = true, note
	m.letters[id] = letter
	return nil
}

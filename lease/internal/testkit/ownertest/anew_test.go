// SPDX-License-Identifier: Apache-2.0

package ownertest

// The sources of users pass MadeAnew: those that can tell their log from another one, and those that know its end alone.

import (
	"context"
	"sync"
	"testing"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/adopt"
)

func TestSourceMadeAnew(t *testing.T) {
	t.Run("Identified", func(t *testing.T) { MadeAnew(t, nil, func(testing.TB) Remade { return newShelf(true) }) })
	t.Run("Ended", func(t *testing.T) { MadeAnew(t, nil, func(testing.TB) Remade { return newShelf(false) }) })
}

// shelf has the log that is under a name now, and a position that stays when that changes.
type shelf struct {
	mu       sync.Mutex // guards all below
	log      *dispatch.Log
	edition  byte
	position int64
}

func newShelf(named bool) Remade {
	s := &shelf{log: new(dispatch.Log), edition: 'A'}
	store := durable.NewMemStore()
	return Remade{
		Join: func() dispatch.Ownership {
			var source dispatch.Source = &ended{s}
			if named {
				source = &identified{ended{s}}
			}
			ledger, _ := durable.New(durable.Config{Store: store, MaxRetries: 100}) // this Config is valid
			return only{Name: "p", Source: source, Ledger: ledger}
		},
		Append: func(domain string, payload []byte) { s.now().Append(domain, payload) },
		Remake: func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.log = new(dispatch.Log)
			s.edition++
		},
		Adopt: func(ctx context.Context) error {
			all, err := adopt.Ledgers(ctx, func(yield func(string, durable.Store) bool) { yield("p", store) })
			if err == nil {
				err = all[0].Adopt(ctx)
			}
			return err
		},
		Unnamed: !named,
	}
}

func (s *shelf) now() *dispatch.Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log
}

// ended is a source that knows its end.
type ended struct{ *shelf }

func (e *ended) Committed(context.Context) (int64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.position, nil
}

func (e *ended) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	return e.now().Fetch(ctx, from, limit)
}

func (e *ended) Commit(_ context.Context, floor int64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.position = max(e.position, floor)
	return nil
}

func (e *ended) End(ctx context.Context) (int64, error) { return e.now().End(ctx) }

// identified is a source that can tell its log as well.
type identified struct{ ended }

func (i *identified) Identity(context.Context) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return "edition " + string(i.edition), nil
}

// SPDX-License-Identifier: Apache-2.0

package journal_test

// This file is a store in memory with the faults that a real one has.

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/journal"
)

var ctx = context.Background()

// server has the journal of one ledger.
type server struct {
	mu      sync.Mutex // guards all below
	claim   uint64
	number  uint64 // of the last entry
	entries map[uint64][]byte
	appends int
	limit   int
	growth  int // of the ledgers' Config
	// fault is asked before an Append: 0: none; lost: it is not carried out, and is not answered; deaf: it is carried out and not
	// answered.
	fault func() fault
	down  bool // nothing is carried out
}

type fault int

const (
	lost fault = iota + 1
	deaf
)

var errFault = errors.New("no answer")

func newServer() *server {
	return &server{entries: map[uint64][]byte{}, limit: 1 << 20, fault: func() fault { return 0 }}
}

// store is what one owner sees of a server.
type store struct {
	*server
	mine uint64
}

func (s *store) Claim(context.Context) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return 0, errFault
	}
	s.claim++
	s.mine = s.claim
	return s.claim, nil
}

func (s *store) Read(_ context.Context, take func([]byte) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var numbers []uint64
	for n := range s.entries {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		if err := take(slices.Clone(s.entries[n])); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) Append(_ context.Context, entry []byte) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.appends++
	f := s.fault()
	switch {
	case s.down, f == lost:
		return 0, errFault
	case s.claim != s.mine:
		return 0, journal.ErrClaimed
	case len(entry) > s.limit:
		return 0, errors.New("too large")
	}
	s.number++ // whatever became of the one before
	s.entries[s.number] = slices.Clone(entry)
	if f == deaf {
		return 0, errFault
	}
	return s.number, nil
}

func (s *store) Trim(_ context.Context, below uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range s.entries {
		if n < below {
			delete(s.entries, n)
		}
	}
	return nil
}

func (s *store) Limit() int { return s.limit }

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func open(t fataler, s *server, cfg lease.Config) *journal.Ledger {
	t.Helper()
	l, err := journal.Open(ctx, journal.Config{Store: &store{server: s}, Name: "orders/0", Fresh: time.Minute, Growth: s.growth,
		Ledger: cfg})
	noError(t, err)
	return l
}

type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func noError(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package leasepg

// This file sends swaps that are made side by side in one statement: a commit for many costs little more than a commit for one.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stopbank/stopbank/lease/durable"
)

const (
	// maxFlights is how many statements are under way before swaps gather. Up to as many callers never wait for each other.
	maxFlights = 2
	// maxGathered bounds the swaps of one statement, and maxShared the state of one that is sent with others, so that no statement is huge.
	maxGathered = 256
	maxShared   = 1 << 14
	// patience is how long a swap that was sent alone counts as under way. It may wait for a row lock of somebody else's transaction,
	// which is no reason for other domains to wait. A statement with many never does.
	patience = 5 * time.Millisecond
)

// change is one swap.
type change struct {
	name         string
	domain, long []byte
	old, version uint64
	held, ready  bool
	state        []byte

	flight *flight       // set, under gatherer.mu, when it is sent with others
	done   chan struct{} // closed when what follows is set
	alone  bool          // it was not carried out with the others, and never will be: conflict, row lock or refusal show when it is sent alone
	err    error
}

// flight is one statement with some swaps.
type flight struct {
	members atomic.Int64       // callers that still wait for it
	cancel  context.CancelFunc // ends it, when nobody does
}

// gatherer holds back swaps while enough statements are under way.
type gatherer struct {
	mu      sync.Mutex // guards all below; never held while the database works
	flying  int
	waiting []*change
}

// Swap implements durable.Store. It blocks for one round trip, and for a writer of the same record that is before it. While some swaps are under way, more
// of them gather and are sent together by a goroutine that ends with them; each has its own outcome, and its own ctx.
func (s *Store) Swap(ctx context.Context, name string, old uint64, state []byte, index durable.Index) (uint64, error) {
	c, err := s.change(ctx, name, old, state, index)
	if err != nil {
		return 0, err
	}
	if s.mayGoAlone(c) {
		over := time.AfterFunc(patience, s.land)
		defer func() {
			if over.Stop() {
				s.land()
			}
		}()
		return s.swapAlone(ctx, c)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if s.leave(c) {
			return 0, fmt.Errorf("leasepg: %w: not sent: %w", durable.ErrNotApplied, ctx.Err())
		}
		return 0, fmt.Errorf("leasepg: swap: %w", ctx.Err())
	}
	switch {
	case c.alone:
		return s.swapAlone(ctx, c)
	case c.err != nil:
		return 0, c.err
	}
	return c.version, nil
}

// mayGoAlone counts c as a statement under way, or puts it to those that gather.
func (s *Store) mayGoAlone(c *change) bool {
	s.gather.mu.Lock()
	defer s.gather.mu.Unlock()
	if s.gather.flying < maxFlights || len(c.state) > maxShared {
		s.gather.flying++
		return true
	}
	c.done = make(chan struct{})
	s.gather.waiting = append(s.gather.waiting, c)
	return false
}

// leave takes c from those that gather. If it was sent, the caller no longer waits for it, and the last one to say so ends the statement.
func (s *Store) leave(c *change) (unsent bool) {
	s.gather.mu.Lock()
	defer s.gather.mu.Unlock()
	if c.flight != nil {
		if c.flight.members.Add(-1) == 0 {
			c.flight.cancel()
		}
		return false
	}
	for i, other := range s.gather.waiting {
		if other == c {
			s.gather.waiting = append(s.gather.waiting[:i:i], s.gather.waiting[i+1:]...)
		}
	}
	return true
}

// land ends a statement; what has gathered takes its place.
func (s *Store) land() {
	s.gather.mu.Lock()
	defer s.gather.mu.Unlock()
	var batch []*change
	rest, taken := s.gather.waiting[:0:0], map[string]bool{}
	for _, c := range s.gather.waiting {
		if len(batch) == maxGathered || taken[c.name] {
			rest = append(rest, c) // of two swaps of a record the second one has to see the first
			continue
		}
		taken[c.name] = true
		batch = append(batch, c)
	}
	s.gather.waiting = rest
	if len(batch) == 0 {
		s.gather.flying--
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &flight{cancel: cancel}
	f.members.Store(int64(len(batch)))
	for _, c := range batch {
		c.flight = f
	}
	go func() {
		defer s.land()
		defer cancel()
		s.swapTogether(ctx, batch)
	}()
}

// together changes those rows that are where they are said to be and that nobody has locked, and tells which. It waits for nobody, but for somebody who
// creates the same row: in one order, so that two of them cannot wait for each other.
const together = `WITH given AS (
		SELECT * FROM unnest($2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[], $6::boolean[], $7::boolean[], $8::bytea[])
			AS g (domain, long_domain, old, version, held, ready, state)
	), created AS (
		INSERT INTO stopbank.lease_domains (ledger, domain, long_domain, version, held, ready, state)
		SELECT $1, domain, long_domain, version, held, ready, state FROM given WHERE old = 0 ORDER BY domain
		ON CONFLICT DO NOTHING RETURNING domain
	), free AS (
		SELECT d.ctid AS place, g.version, g.held, g.ready, g.state
		FROM given g JOIN stopbank.lease_domains d ON d.ledger = $1 AND d.domain = g.domain AND d.version = g.old
		WHERE g.old <> 0 FOR NO KEY UPDATE OF d SKIP LOCKED
	), replaced AS (
		UPDATE stopbank.lease_domains d SET version = f.version, held = f.held, ready = f.ready, state = f.state
		FROM free f WHERE d.ctid = f.place RETURNING d.domain
	)
	SELECT domain FROM created UNION ALL SELECT domain FROM replaced`

// swapTogether sends a batch and tells each of it what became of it.
func (s *Store) swapTogether(ctx context.Context, batch []*change) {
	n := len(batch)
	domains, longs, states := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	olds, versions := make([]int64, n), make([]int64, n)
	held, ready := make([]bool, n), make([]bool, n)
	for i, c := range batch {
		domains[i], longs[i], states[i] = c.domain, c.long, c.state
		olds[i], versions[i] = int64(c.old), int64(c.version)
		held[i], ready[i] = c.held, c.ready
	}
	carried := map[string]bool{}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		err = fmt.Errorf("leasepg: %w: no connection: %w", durable.ErrNotApplied, err)
	} else {
		rows, _ := conn.Query(ctx, together, s.ledger, domains, longs, olds, versions, held, ready, states) // rows have the error as well
		var domain []byte
		_, err = pgx.ForEachRow(rows, []any{&domain}, func() error {
			carried[string(domain)] = true
			return nil
		})
		conn.Release()
		if err != nil {
			err = failed(err)
		}
	}
	refused := errors.Is(err, durable.ErrConflict) || errors.Is(err, durable.ErrNotApplied)
	for _, c := range batch {
		switch {
		case err != nil && !refused:
			c.err = err
		case !carried[string(c.domain)] || refused:
			c.alone = true
		}
		close(c.done)
	}
}

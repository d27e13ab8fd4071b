// SPDX-License-Identifier: Apache-2.0

// A partition for engines that only assign partitions and store no records.

package ownertest

import (
	"context"
	"errors"
	"sync"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
)

// Log is a partition in memory that accepts commits only from its last claimant, as a Source should.
type Log struct {
	dispatch.Log
	Name string

	store durable.Store // of its ledger

	mu    sync.Mutex // guards owner
	owner *claim
}

// NewLog returns an empty Log.
func NewLog(name string) *Log { return &Log{Name: name, store: durable.NewMemStore()} }

// Open returns the partition with a new Source and a new Ledger, as each owner has its own.
func (l *Log) Open() dispatch.Partition {
	ledger, _ := durable.New(durable.Config{Store: l.store, MaxRetries: 100}) // this Config is valid
	return dispatch.Partition{Name: l.Name, Source: &claim{Log: l}, Ledger: ledger}
}

// claim is a Log as one owner sees it.
type claim struct{ *Log }

// Committed claims the log.
func (c *claim) Committed(ctx context.Context) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owner = c
	return c.Log.Committed(ctx)
}

// Commit rejects every caller but the last claimant.
func (c *claim) Commit(ctx context.Context, floor int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owner != c {
		return dispatch.Lost(c.Name, errors.New("ownertest: somebody else has claimed the log"))
	}
	return c.Log.Commit(ctx, floor)
}

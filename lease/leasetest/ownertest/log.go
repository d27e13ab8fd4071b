package ownertest

// This file is a partition for engines that share partitions out and have no records of their own.

import (
	"context"
	"errors"
	"sync"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
)

// Log is a partition in memory whose commits are for whoever claimed it last, as a Source's should be.
type Log struct {
	dispatch.Log
	Name string

	store durable.MemStore // of its ledger

	mu    sync.Mutex // guards owner
	owner *claim
}

// NewLog returns an empty Log.
func NewLog(name string) *Log { return &Log{Name: name} }

// Open returns the partition with a Source and a Ledger of its own, as each owner has one. An old program is one of the version before, while there
// are such: it does not write what still older ones could not read.
func (l *Log) Open(old bool) dispatch.Partition {
	ledger, _ := durable.New(durable.Config{Store: &l.store, MaxRetries: 100, OldReaders: old}) // it refuses no such Config
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

// Commit refuses whoever is not the last to have claimed the log.
func (c *claim) Commit(ctx context.Context, floor int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owner != c {
		return &dispatch.LostError{Partition: c.Name, Err: errors.New("ownertest: somebody else has claimed the log")}
	}
	return c.Log.Commit(ctx, floor)
}

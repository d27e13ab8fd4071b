package ownertest

// This file is a partition for engines that share partitions out and have no records of their own.

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// Log is a partition in memory whose commits are for whoever claimed it last, as a Source's should be.
type Log struct {
	dispatch.Log
	Name   string
	Ledger lease.Ledger

	mu    sync.Mutex // guards owner
	owner *claim
}

// NewLog returns an empty Log with a ledger in memory.
func NewLog(t testing.TB, name string) *Log {
	ledger, err := lease.NewMemory(lease.Config{MaxRetries: 100})
	if err != nil {
		t.Fatal(err)
	}
	return &Log{Name: name, Ledger: ledger}
}

// Open returns the partition with a Source of its own, as each owner has one.
func (l *Log) Open() dispatch.Partition {
	return dispatch.Partition{Name: l.Name, Source: &claim{Log: l}, Ledger: l.Ledger}
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

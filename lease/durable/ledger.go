// SPDX-License-Identifier: Apache-2.0

// The ledger: its configuration and how the calls reach a domain.

package durable

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/nilcheck"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// Config configures a ledger.
type Config struct {
	// Store keeps the ledger. Required. Any number of ledgers, in one process or in many, may share it.
	Store Store
	// MaxRetries is how many Fail calls of a lease lead to a retry; the next one gives the offset up. 0 to 2147483647;
	// 0: no retries, the first failure is final. The store does not keep it: each process uses its own.
	MaxRetries int
	// MaxBacklog bounds the waiting offsets of one domain. 0: unbounded. Not negative. The store does not keep it.
	MaxBacklog int
	// Observer, when not nil, receives every decision, and every call for one that ended in an error of the Store.
	Observer lease.Observer
	// MaxCached bounds the domains whose latest state stays in memory while no call works on them. 0: 10,000. Not
	// negative. A domain that is not in memory is read again when it is used.
	MaxCached int
}

const defaultCached = 10_000

// engine keeps the states of a ledger in a Store.
type engine struct {
	store Store
	cache cache

	writer        atomic.Uint64 // this engine's number among all that ever wrote to the ledger; 0: none yet
	clock         atomic.Uint64 // of tokens: at least that of any token that this engine made
	writes        atomic.Uint64 // writes tried, for their ids
	floor         atomic.Int64  // the greatest floor that this engine has read in the root
	seen          atomic.Uint64 // the greatest version of the root that was answered
	writersIssued atomic.Uint64 // how many numbers the root is known to have given out
}

var _ step.Engine = (*engine)(nil)

// New returns a ledger over cfg.Store. It does not call the Store; the ledger has no goroutine and nothing to close. Error:
// *lease.InvalidError naming the field.
//
// A call that changes a domain that this ledger used last costs one Swap; a first use costs a Load more, and one of the
// ledger's own record if the domain is new; the ledger's first call a Load and a Swap of that record. Ready and Held cost a
// List of the Store and a Load for each domain, Inspect two Loads. Compact costs a Load and a Swap, whatever the number of
// domains: each domain is trimmed when it is written next, and other processes learn the floor with their first call, when
// they meet a domain that is new to the store, meet a state trimmed at it, or call Inspect or Compact. Until then they answer
// by the floor that they know, and never contradict a completed offset.
//
// Calls of one ledger on one domain run one after another; conflicts with other processes are resolved by a retry on the
// new version. Beyond lease.Ledger's errors each call may return ErrStore, ErrAmbiguous (the only error after which the ledger
// may have changed), ErrCorrupt, ErrNewer and ErrExhausted. TryAcquire and Offer return lease.ErrBacklogFull also for
// a domain whose record would outgrow the Store's limit before its backlog is finished: finish what waits, or raise the floor.
func New(cfg Config) (lease.Ledger, error) {
	missing, typed := nilcheck.Required(cfg.Store), nilcheck.Optional(cfg.Observer)
	switch {
	case missing != "":
		return nil, &lease.InvalidError{Field: "durable.Config.Store", Value: missing, Allowed: "a Store"}
	case typed != "":
		return nil, &lease.InvalidError{Field: "durable.Config.Observer", Value: typed, Allowed: "nil (no observer) or an observer"}
	case cfg.MaxBacklog < 0:
		return nil, &lease.InvalidError{Field: "durable.Config.MaxBacklog", Value: cfg.MaxBacklog, Allowed: "0 (unbounded) or more"}
	case cfg.MaxCached < 0:
		return nil, &lease.InvalidError{Field: "durable.Config.MaxCached", Value: cfg.MaxCached,
			Allowed: "0 (the default, 10000) or more"}
	case cfg.MaxRetries < 0 || cfg.MaxRetries > math.MaxInt32:
		return nil, &lease.InvalidError{Field: "durable.Config.MaxRetries", Value: cfg.MaxRetries,
			Allowed: "0 (no retries) to 2147483647"}
	}
	l := &engine{store: cfg.Store, cache: cache{entries: map[string]*entry{}, max: cfg.MaxCached}}
	if l.cache.max == 0 {
		l.cache.max = defaultCached
	}
	l.floor.Store(noFloor)
	shared := lease.Config{MaxRetries: cfg.MaxRetries, MaxBacklog: cfg.MaxBacklog, Observer: cfg.Observer}
	return &kept{lease.FromEngine(l, shared), l}, nil
}

// Do implements step.Engine.
func (l *engine) Do(ctx context.Context, op step.Op) (r step.Result, err error) {
	if op.Kind.Grants() {
		op.Now = time.Now().UnixNano()
	}
	err = l.exclusive(ctx, op.Domain, func(e *entry) error { return l.run(ctx, e, &op, &r) })
	return r, err
}

// exclusive runs work while no other call of this engine works on the domain. It waits for its turn until ctx ends.
func (l *engine) exclusive(ctx context.Context, name string, work func(*entry) error) error {
	e, err := l.cache.enter(ctx, name)
	if err != nil {
		return err
	}
	defer l.cache.leave(e)
	return work(e)
}

// Inspect implements step.Engine.
func (l *engine) Inspect(ctx context.Context, domain string) (v step.Snapshot, err error) {
	// Exclusive, so that no call of this engine that is judged by an earlier floor can land behind what is seen here.
	err = l.exclusive(ctx, domain, func(e *entry) error {
		rec, version, err := l.load(ctx, l.store, e)
		if err != nil {
			return err
		}
		if version != 0 { // otherwise load has read the root
			if _, _, err := l.loadRoot(ctx, l.store); err != nil {
				return err
			}
		}
		e.keep(rec, version)
		v = rec.state.Snapshot(l.floor.Load())
		return nil
	})
	return v, err
}

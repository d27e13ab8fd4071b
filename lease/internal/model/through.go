// SPDX-License-Identifier: Apache-2.0

package model

// Ledgers made of a function that makes calls, and of several ledgers.

import (
	"context"
	"iter"
	"sync"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// Through is a ledger whose calls go through one function; Ready and Held are the embedded ledger's.
type Through struct {
	lease.Ledger
	Make func(context.Context, Call) Reply
}

// TryAcquire implements lease.Ledger, as all that follows.
func (t Through) TryAcquire(ctx context.Context, domain string, offset int64) (lease.Acquisition, error) {
	r := t.Make(ctx, Call{Op: step.TryAcquire, Domain: domain, Offset: offset})
	return r.Acquisition, r.Err
}

// Offer makes the call.
func (t Through) Offer(ctx context.Context, domain string, offset int64) (lease.Status, error) {
	r := t.Make(ctx, Call{Op: step.Offer, Domain: domain, Offset: offset})
	return r.Status, r.Err
}

// AcquireNext makes the call.
func (t Through) AcquireNext(ctx context.Context, domain string) (lease.Acquisition, error) {
	r := t.Make(ctx, Call{Op: step.AcquireNext, Domain: domain})
	return r.Acquisition, r.Err
}

// Succeed makes the call.
func (t Through) Succeed(ctx context.Context, domain string, token lease.Token) (lease.Completion, error) {
	r := t.Make(ctx, Call{Op: step.Succeed, Domain: domain, Token: token})
	return r.Completion, r.Err
}

// Fail makes the call.
func (t Through) Fail(ctx context.Context, domain string, token lease.Token) (lease.Failure, error) {
	r := t.Make(ctx, Call{Op: step.Fail, Domain: domain, Token: token})
	return r.Failure, r.Err
}

// GiveUp makes the call.
func (t Through) GiveUp(ctx context.Context, domain string, token lease.Token) (lease.Failure, error) {
	r := t.Make(ctx, Call{Op: GiveUp, Domain: domain, Token: token})
	return r.Failure, r.Err
}

// Reclaim makes the call.
func (t Through) Reclaim(ctx context.Context, domain string, held lease.Token) (lease.Lease, error) {
	r := t.Make(ctx, Call{Op: step.Reclaim, Domain: domain, Token: held})
	return r.Lease, r.Err
}

// Release makes the call.
func (t Through) Release(ctx context.Context, domain string, token lease.Token) error {
	return t.Make(ctx, Call{Op: step.Release, Domain: domain, Token: token}).Err
}

// Inspect makes the call whose Op is 0.
func (t Through) Inspect(ctx context.Context, domain string) (lease.View, error) {
	r := t.Make(ctx, Call{Domain: domain})
	return r.View, r.Err
}

// Compact makes the call, whose Offset is the floor.
func (t Through) Compact(ctx context.Context, floor int64) error {
	return t.Make(ctx, Call{Op: step.Compact, Offset: floor}).Err
}

// several is a ledger each of whose calls goes to another process.
type several struct {
	lease.Ledger // the first; every call goes elsewhere
	open         func() lease.Ledger

	// whole is held for writing by Compact, which every process has heard of when it ends: how soon others hear of it is no part
	// of the contract.
	whole sync.RWMutex

	mu      sync.Mutex // guards what follows
	calls   int
	ledgers [3]lease.Ledger
}

// Several is one ledger, which three processes have opened: each call goes to another of them, and now and then one is opened anew.
func Several(open func() lease.Ledger) lease.Ledger {
	s := &several{open: open}
	for i := range s.ledgers {
		s.ledgers[i] = open()
	}
	s.Ledger = s.ledgers[0]
	return Through{Ledger: s, Make: s.do}
}

func (s *several) next() lease.Ledger {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	i := s.calls % len(s.ledgers)
	if s.calls%17 == 0 {
		s.ledgers[i] = s.open()
	}
	return s.ledgers[i]
}

func (s *several) do(ctx context.Context, c Call) Reply {
	if c.Op != step.Compact {
		s.whole.RLock()
		defer s.whole.RUnlock()
		return c.Do(ctx, s.next())
	}
	s.whole.Lock()
	defer s.whole.Unlock()
	r := c.Do(ctx, s.next())
	if r.Err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, l := range s.ledgers {
			if _, err := l.Inspect(ctx, "any"); err != nil {
				r.Err = err
			}
		}
	}
	return r
}

func (s *several) Ready(ctx context.Context) iter.Seq2[lease.Head, error] { return s.next().Ready(ctx) }
func (s *several) Held(ctx context.Context) iter.Seq2[lease.Lease, error] { return s.next().Held(ctx) }

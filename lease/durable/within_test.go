// SPDX-License-Identifier: Apache-2.0

// An offset that is finished in a transaction which may or may not be committed, over a store in memory.

package durable_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
)

// pending is a transaction that writes one record.
type pending struct {
	*durable.MemStore
	commit func() error
	fails  error
}

func (p *pending) Swap(_ context.Context, name string, old uint64, state []byte, index durable.Index) (uint64, error) {
	p.commit = func() error {
		_, err := p.MemStore.Swap(context.Background(), name, old, state, index)
		return err
	}
	return old + 1, p.fails
}

func TestSucceedIn(t *testing.T) {
	store := new(durable.MemStore)
	ledger := must(durable.Open(durable.Config{Store: store, MaxRetries: 1}))(t)
	if ledger.Store() != durable.Store(store) {
		t.Error("Store is not the one that was given")
	}
	held := must(ledger.TryAcquire(t.Context(), "A", 1))(t)
	must(ledger.Offer(t.Context(), "A", 2))(t)
	succeed := func(token lease.Token) (*pending, lease.Completion, error) {
		tx := &pending{MemStore: store}
		c, err := ledger.SucceedIn(t.Context(), tx, lease.Lease{Domain: "A", Offset: held.Lease.Offset, Token: token})
		return tx, c, err
	}
	if tx, _, err := succeed(held.Lease.Token + 1); !errors.Is(err, lease.ErrTokenMismatch) || tx.commit != nil {
		t.Errorf("another token: %v", err)
	}
	stray := held.Lease // of another ledger, whose first token is the same number
	stray.Offset = 2
	tx := &pending{MemStore: store}
	if _, err := ledger.SucceedIn(t.Context(), tx, stray); !errors.Is(err, lease.ErrTokenMismatch) || tx.commit != nil {
		t.Errorf("L14: a lease on another offset: %v", err)
	}
	if _, err := ledger.SucceedIn(t.Context(), &pending{MemStore: store, fails: errInjected}, held.Lease); !errors.Is(err,
		errInjected) || !errors.Is(err, durable.ErrStore) {
		t.Errorf("a transaction that fails: %v", err)
	}
	if _, err := ledger.SucceedIn(t.Context(), nil, held.Lease); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("no view: %v", err)
	}
	if _, c, err := succeed(held.Lease.Token); err != nil || c.Status != lease.NextHint || c.Next != 2 { // and never committed
		t.Fatalf("%+v, %v", c, err)
	}
	if f, err := ledger.Fail(t.Context(), "A", held.Lease.Token); err != nil || f.RetryCount != 1 {
		t.Fatalf("after a rollback: %+v, %v", f, err)
	}
	tx, _, err := succeed(held.Lease.Token)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := ledger.Inspect(t.Context(), "A"); err != nil ||
		v.Lease == nil { // which is kept in memory now, and about to be wrong
		t.Fatalf("before the commit: %+v, %v", v, err)
	}
	noError(t, tx.commit())
	var done *lease.LeaseNotFoundError
	if _, err := ledger.Succeed(t.Context(), "A", held.Lease.Token); !errors.As(err, &done) ||
		done.Status != lease.AlreadyProcessed || done.Offset != 1 {
		t.Errorf("after the commit: %v", err)
	}
	if a, err := ledger.AcquireNext(t.Context(), "A"); err != nil || a.Lease.Offset != 2 {
		t.Errorf("the next one: %+v, %v", a, err)
	}
}

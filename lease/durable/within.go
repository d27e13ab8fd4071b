// SPDX-License-Identifier: Apache-2.0

// An offset finished in the caller's transaction.

package durable

import (
	"context"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/nilcheck"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// kept is what New returns: a Ledger that leasepg.SucceedTx can look into.
type kept struct {
	lease.Ledger
	engine *engine
}

// Store returns Config.Store.
func (k *kept) Store() Store { return k.engine.store }

// SucceedIn ends lease l as Succeed does, inside a transaction of the caller's. view is the ledger's Store as seen by the
// transaction: its Load must lock the record against other writers until the transaction ends; its Limit and List are not called.
// This ledger assumes nothing about the commit: its next call on the domain reads the record again. Config.Observer gets no
// event. After the commit, Succeed with this token returns a *lease.LeaseNotFoundError whose Status is
// AlreadyProcessed.
//
// Errors: those of Succeed except ErrAmbiguous. After an error the transaction must be rolled back.
func (k *kept) SucceedIn(ctx context.Context, view Store, l lease.Lease) (lease.Completion, error) {
	if missing := nilcheck.Required(view); missing != "" {
		return lease.Completion{}, &lease.InvalidError{Field: "view", Value: missing, Allowed: "a Store"}
	}
	return lease.FromEngine(within{k.engine, view, l.Offset}, lease.Config{}).Succeed(ctx, l.Domain, l.Token)
}

// within is an engine in one transaction.
type within struct {
	*engine
	view   Store
	offset int64 // of the lease
}

// Do carries out a Succeed.
func (w within) Do(ctx context.Context, op step.Op) (r step.Result, err error) {
	// The state in memory is forgotten at once, and the turn given up too: the lock on the record may have to be waited for,
	// and belongs to the transaction.
	e := &entry{name: op.Domain}
	if err := w.exclusive(ctx, op.Domain, func(cached *entry) error {
		cached.take()
		e.seen = cached.seen
		return nil
	}); err != nil {
		return r, err
	}
	rec, version, err := w.load(ctx, w.view, e)
	if err != nil {
		return r, err
	}
	// Two ledgers may give the same token to a domain: a lease of another ledger ends nothing here.
	if held, ok := rec.state.Leased(); ok && held.Offset != w.offset {
		return r, &lease.TokenMismatchError{Domain: op.Domain, Offset: held.Offset, Got: lease.Token(op.Token)}
	}
	// No number of a writer: Succeed makes no token.
	if err := w.step(rec, 0, &op, &r); err != nil || r.Refused != 0 {
		return r, err
	}
	// No write id either: no call will look for this write, and ids that other calls look for are not dropped.
	rec.swaps++
	if _, err = w.view.Swap(ctx, op.Domain, version, rec.encode(op.Domain), rec.index()); err != nil {
		return r, storeError("Swap", op.Domain, err)
	}
	return r, nil
}

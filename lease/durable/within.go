package durable

// This file finishes an offset in a transaction of the caller's, who may commit it or not.

import (
	"context"

	"github.com/stopbank/stopbank/lease"
)

// Store returns Config.Store.
func (l *Ledger) Store() Store {
	if l == nil {
		return nil
	}
	return l.cfg.Store
}

// SucceedIn is Succeed in a transaction that is not over yet: view is the ledger's Store as the transaction sees it. Its Load has to keep every other writer from
// the record until the transaction ends, and neither its Limit nor its List is called. This Ledger takes nothing for written: whatever becomes of the
// transaction, the next call on the domain reads the record again. Config.Observer is not told; what ends the domain's lease for sure is
// the commit, after which Succeed with this token is a *lease.LeaseNotFoundError whose Outcome is OutcomeProcessed.
//
// An engine with transactions makes something handier of it, as leasepg.SucceedTx is. Errors: those of Succeed but *AmbiguousError and *ContentionError. After
// an error the transaction must be rolled back.
func (l *Ledger) SucceedIn(ctx context.Context, view Store, domain string, token lease.Token) (lease.Completion, error) {
	if err := l.admit(ctx, domain); err != nil {
		return lease.Completion{}, err
	}
	if view == nil {
		return lease.Completion{}, &lease.InvalidError{Field: "view", Value: "nil", Allowed: "a Store"}
	}
	// What is in memory is let go at once, and the turn too: the lock on the record may have to be waited for, and belongs to the transaction.
	e := &entry{name: domain}
	if err := l.exclusive(ctx, domain, func(kept *entry) error {
		kept.take()
		e.seen = kept.seen
		return nil
	}); err != nil {
		return lease.Completion{}, err
	}
	rec, version, err := l.load(ctx, view, e)
	if err != nil {
		return lease.Completion{}, err
	}
	var r lease.Result
	// No number of a writer: Succeed makes no token.
	if err := l.step(rec, 0, &lease.Op{Kind: lease.OpSucceed, Domain: domain, Token: token}, &r); err != nil {
		return lease.Completion{}, err
	}
	// No write id either: no call will look for this write, and ids that other calls look for are not dropped.
	rec.swaps++
	data, err := rec.encode(domain)
	if err == nil {
		_, err = view.Swap(ctx, domain, version, data, rec.index())
	}
	if err != nil {
		return lease.Completion{}, &StoreError{Call: "Swap", Name: domain, Err: err}
	}
	return lease.Completion{Status: r.Complete, Next: r.Next}, nil
}

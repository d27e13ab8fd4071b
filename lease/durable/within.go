package durable

// This file finishes an offset in the caller's transaction.

import (
	"context"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/nilcheck"
)

// Store returns Config.Store.
func (l *Ledger) Store() Store {
	if l == nil {
		return nil
	}
	return l.cfg.Store
}

// SucceedIn is Succeed inside a transaction of the caller's. view is the ledger's Store as seen by the transaction: its
// Load must lock the record against other writers until the transaction ends; its Limit and List are not called. This
// Ledger assumes nothing about the commit: its next call on the domain reads the record again. Config.Observer gets no
// event. After the commit, Succeed with this token returns a *lease.LeaseNotFoundError whose Outcome is
// OutcomeProcessed.
//
// Engines with transactions wrap it, as leasepg.SucceedTx does. Errors: those of Succeed except *AmbiguousError and
// *ContentionError. After an error the transaction must be rolled back.
func (l *Ledger) SucceedIn(ctx context.Context, view Store, domain string, token lease.Token) (lease.Completion, error) {
	if err := l.admit(ctx, domain); err != nil {
		return lease.Completion{}, err
	}
	if missing := nilcheck.Required(view); missing != "" {
		return lease.Completion{}, &lease.InvalidError{Field: "view", Value: missing, Allowed: "a Store"}
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

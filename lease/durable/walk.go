package durable

// This file is Ready and Held: the store's index names the domains, and each is read before it is yielded.

import (
	"context"
	"iter"

	"github.com/stopbank/stopbank/lease"
)

// Ready implements lease.Ledger. It costs one List of the Store, and a Load for each domain.
func (l *Ledger) Ready(ctx context.Context) iter.Seq2[lease.Head, error] {
	return walk(ctx, l, Ready, func(domain string, s *lease.State) (lease.Head, bool) {
		offset, ok := s.Waiting()
		return lease.Head{Domain: domain, Offset: offset}, ok
	})
}

// Held implements lease.Ledger. It costs one List of the Store, and a Load for each domain.
func (l *Ledger) Held(ctx context.Context) iter.Seq2[lease.Lease, error] {
	return walk(ctx, l, Held, func(domain string, s *lease.State) (lease.Lease, bool) { return s.Leased(domain) })
}

// walk yields what show makes of the domains under index, holding nothing: no turn, no lock, so that the body may call what it likes. A
// domain that show passes over has left the index since.
func walk[T any](ctx context.Context, l *Ledger, index Index, show func(string, *lease.State) (T, bool)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		if err := l.done(ctx); err != nil {
			yield(none, err)
			return
		}
		for domain, err := range l.cfg.Store.List(ctx, index) {
			if err != nil {
				yield(none, &StoreError{Call: "List", Err: err})
				return
			}
			item, ok, err := look(ctx, l, domain, show)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(none, err)
				return
			}
			if ok && !yield(item, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(none, err)
		}
	}
}

func look[T any](ctx context.Context, l *Ledger, domain string, show func(string, *lease.State) (T, bool)) (item T, ok bool, err error) {
	data, version, err := l.read(ctx, l.cfg.Store, domain, 1) // it was listed, so it is there
	if err != nil {
		return item, false, err
	}
	rec, err := l.decode(ctx, l.cfg.Store, data, domain, version)
	if err != nil {
		return item, false, err
	}
	item, ok = show(domain, &rec.state)
	return item, ok, nil
}

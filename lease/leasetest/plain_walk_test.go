package leasetest

// This file is what the plain ledger shows of itself, Ready, Held and Inspect, with their faults.

import (
	"context"
	"iter"
	"slices"

	"github.com/stopbank/stopbank/lease"
)

func (p *plain) Ready(ctx context.Context) iter.Seq2[lease.Head, error] {
	return walk(ctx, p, "Ready", func(domain string, r *entry) (lease.Head, bool) {
		if len(r.backlog) == 0 || r.held != nil && p.fault != "Ready yields what is held" {
			return lease.Head{}, false
		}
		return lease.Head{Domain: domain, Offset: r.backlog[0]}, true
	})
}

func (p *plain) Held(ctx context.Context) iter.Seq2[lease.Lease, error] {
	return walk(ctx, p, "Held", func(_ string, r *entry) (lease.Lease, bool) {
		if r.held == nil || len(r.backlog) > 0 && p.fault == "Held misses leases with a backlog" {
			return lease.Lease{}, false
		}
		return *r.held, true
	})
}

func walk[T any](ctx context.Context, p *plain, name string, show func(string, *entry) (T, bool)) iter.Seq2[T, error] {
	broken := func(fault string) bool { return p.fault == name+" "+fault }
	return func(yield func(T, error) bool) {
		var items []T
		p.mu.Lock()
		for domain, r := range p.domains {
			if item, ok := show(domain, r); ok {
				items = append(items, item)
			}
		}
		switch {
		case broken("yields a page only") && len(items) > 100:
			items = items[:100]
		case broken("yields the end of a page again") && len(items) > 100:
			items = slices.Insert(items, 100, items[99])
		}
		if broken("yields under its lock") {
			defer p.mu.Unlock()
		} else {
			p.mu.Unlock()
		}
		if len(items) == 0 && broken("of nothing does not look at the context") {
			return
		}
		for i := 0; ; i++ {
			looks := i == 0 || !broken("does not notice that it is cancelled")
			if err := ctx.Err(); err != nil && looks {
				if broken("ends in silence") {
					return
				}
				var none T
				if !yield(none, err) || !broken("goes on after its error") {
					return
				}
			}
			if i >= len(items) {
				return
			}
			if !yield(items[i], nil) {
				if broken("stays locked after a break") {
					p.mu.Lock()
				}
				if !broken("goes on after a break") {
					return
				}
			}
		}
	}
}

func (p *plain) Inspect(ctx context.Context, domain string) (lease.View, error) {
	r, err := p.enter(ctx, domain)
	if err != nil {
		return lease.View{}, err
	}
	defer p.mu.Unlock()
	v := lease.View{Domain: domain, Backlog: slices.Clone(r.backlog), Floor: p.floor}
	if p.fault == "the view is no copy" {
		v.Backlog = r.backlog
	}
	if r.held != nil {
		held := *r.held
		v.Lease = &held
	}
	for offset, how := range r.done {
		switch {
		case offset < p.floorOf(r):
		case how == lease.OutcomeProcessed:
			v.Processed++
		default:
			v.Failed++
		}
	}
	return v, nil
}

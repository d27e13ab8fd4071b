// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file takes a partition over: where to begin, the leases of processes that died (D6), and what waits in the ledger.

import "github.com/stopbank/stopbank/lease"

// take repeats takeOnce until it succeeds, and reports false if the drain begins before.
func (d *Dispatcher) take() bool {
	for n := 1; ; n++ {
		err := d.takeOnce()
		switch {
		case err == nil:
			d.observe(Event{Kind: Taken, Offset: d.position}) // nobody else moves it yet
			return true
		case d.endIfLost(err), d.runCtx.Err() != nil:
			return false
		}
		d.noteRewound(err)
		wait := d.cfg.errorPause(n, random())
		d.observe(Event{Kind: TakeFailed, Err: err, Wait: wait})
		sleep(d.runCtx, wait)
	}
}

// openSource opens the source and the ledger, if the partition came without.
func (d *Dispatcher) openSource() error {
	if d.partition.Open == nil {
		return nil
	}
	source, ledger, err := d.partition.Open(d.runCtx)
	if err != nil {
		return err
	}
	opened := Partition{Name: d.partition.Name, Source: source, Ledger: ledger}
	if err := opened.check(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.partition.Source, d.partition.Ledger, d.partition.Open = source, ledger, nil
	return nil
}

// takeOnce may be called again after an error: a lease that was taken over is in domains by then.
func (d *Dispatcher) takeOnce() error {
	if err := d.openSource(); err != nil {
		return err
	}
	if err := d.identify(d.runCtx); err != nil {
		return err
	}
	from, err := d.partition.Source.Committed(d.runCtx)
	if err != nil {
		return err
	}
	d.clearRewound()
	d.mu.Lock()
	d.position = min(d.position, from)
	d.floors.committed, d.floors.compacted = from, from
	d.mu.Unlock()
	// Every lease that is held now is a former owner's, unless the partition has been assigned to another process meanwhile,
	// which the source knows.
	var held []lease.Lease
	for l, err := range d.partition.Ledger.Held(d.runCtx) {
		if err != nil {
			return err
		}
		held = append(held, l)
	}
	if len(held) > 0 {
		if err := d.checkOwnership(d.runCtx); err != nil {
			return err
		}
	}
	for _, l := range held {
		if dom := d.domains[l.Domain]; dom != nil && dom.state == leased && dom.lease.Token == l.Token {
			continue // taken over before the error
		}
		s := step{call: reclaim, lease: l}
		a := d.call(d.runCtx, &domain{name: l.Domain}, s)
		if isFence(a.err) {
			continue // completed or taken by another process in between; if that goes on, the domain finds it
		}
		if a.err != nil {
			return a.err
		}
		owner := d.ownerOf(l.Domain)
		d.mu.Lock()
		d.position = min(d.position, l.Offset)
		dom := d.domainLocked(l.Domain, owner)
		dom.current = current{state: claiming, lease: l}
		d.mu.Unlock()
		for s = d.learn(dom, s, a); s.call == release; {
			s = d.learn(dom, s, d.call(d.runCtx, dom, s))
		}
	}
	for head, err := range d.partition.Ledger.Ready(d.runCtx) {
		if err != nil {
			return err
		}
		owner := d.ownerOf(head.Domain)
		d.mu.Lock()
		dom := d.domainLocked(head.Domain, owner)
		dom.ledger = mark{true, head.Offset}
		d.position = min(d.position, head.Offset)
		d.mu.Unlock()
	}
	d.mu.Lock()
	d.taken = true
	d.mu.Unlock()
	return nil
}

// domainLocked returns the domain of that name, new and of that owner if need be. The next read examines it.
func (d *Dispatcher) domainLocked(name, owner string) *domain {
	dom := d.domains[name]
	if dom == nil {
		dom = &domain{name: name, owner: d.ownerLocked(owner)}
		dom.owner.domains++
		d.domains[name] = dom
	}
	d.watchLocked(dom)
	return dom
}

// watchLocked makes each read examine dom.
func (d *Dispatcher) watchLocked(dom *domain) {
	if !dom.watched {
		dom.watched = true
		d.watched = append(d.watched, dom)
	}
}

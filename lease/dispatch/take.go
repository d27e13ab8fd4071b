package dispatch

// This file takes a partition over: where to begin, the leases of the dead (D6), and what waits in the ledger.

import "github.com/stopbank/stopbank/lease"

// take goes on until it has worked, or the drain begins.
func (d *Dispatcher) take() bool {
	for n := 1; ; n++ {
		err := d.takeOnce()
		switch {
		case err == nil:
			d.observe(Event{Kind: Taken, Offset: d.high}) // nobody else moves it yet
			return true
		case d.endIfLost(err), d.soft.Err() != nil:
			return false
		}
		wait := d.cfg.errorPause(n)
		d.observe(Event{Kind: TakeFailed, Err: err, Wait: wait})
		sleep(d.soft, wait)
	}
}

// opened gets the source and the ledger, if the partition came without.
func (d *Dispatcher) opened() error {
	if d.open == nil {
		return nil
	}
	source, ledger, err := d.open(d.soft)
	if err != nil {
		return err
	}
	if err := (Partition{Name: d.cfg.Name, Source: source, Ledger: ledger}).complete(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cfg.Source, d.cfg.Ledger, d.open = source, ledger, nil
	return nil
}

// takeOnce may be called again after an error: a lease that it has dealt with is in domains by then.
func (d *Dispatcher) takeOnce() error {
	if err := d.opened(); err != nil {
		return err
	}
	from, err := d.cfg.Source.Committed(d.soft)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.high = min(d.high, from)
	d.where.committed, d.where.compacted = from, from
	d.mu.Unlock()
	// Every lease that is held now belongs to somebody who is gone, unless the partition has been given on meanwhile. The source knows.
	var held []lease.Lease
	for l, err := range d.cfg.Ledger.Held(d.soft) {
		if err != nil {
			return err
		}
		held = append(held, l)
	}
	if len(held) > 0 {
		if err := d.ask(d.soft); err != nil {
			return err
		}
	}
	for _, l := range held {
		if dom := d.domains[l.Domain]; dom != nil && dom.stage == missing && dom.lease.Token == l.Token {
			continue // dealt with before the error
		}
		t, err := d.takeOverLease(d.soft, l)
		if isFence(err) {
			continue // it was completed, or taken by somebody else, in between: busy will see
		}
		if err != nil {
			return err
		}
		owner := d.ownerOf(l.Domain)
		d.mu.Lock()
		d.high = min(d.high, l.Offset)
		dom := d.domain(l.Domain, owner)
		dom.recordState, dom.open, dom.at = t, true, l.Offset
		d.mu.Unlock()
	}
	for head, err := range d.cfg.Ledger.Ready(d.soft) {
		if err != nil {
			return err
		}
		owner := d.ownerOf(head.Domain)
		d.mu.Lock()
		dom := d.domain(head.Domain, owner)
		dom.open, dom.at = true, head.Offset
		d.high = min(d.high, head.Offset)
		d.mu.Unlock()
	}
	d.mu.Lock()
	d.begun = true
	d.mu.Unlock()
	return nil
}

// domain returns the domain of that name, new and of that owner if need be. The next reading looks at it. The lock is held.
func (d *Dispatcher) domain(name, owner string) *domain {
	dom := d.domains[name]
	if dom == nil {
		dom = &domain{name: name, of: d.owned(owner)}
		dom.of.domains++
		d.domains[name] = dom
	}
	d.attend(dom)
	return dom
}

// attend has the readings look at dom. The lock is held.
func (d *Dispatcher) attend(dom *domain) {
	if !dom.attended {
		dom.attended = true
		d.attended = append(d.attended, dom)
	}
}

package dispatch

// This file is one owner's domains in this partition: the runnable ones, and their order.

import "container/heap"

// owner has some of the domains. Records beyond MaxPerOwner are read again later, like those beyond a domain's share: one offset marks them. Guarded by Dispatcher.mu.
type owner struct {
	name    string
	line    *line
	domains int // that are remembered
	lag
	buffered int // records in their queues

	bookkeeping byAge // that could go on without an attempt
	ready       byAge
	suspects    byAge // that could go on, but one at a time
}

// attempts: what comes next in dom is a call of the handler.
func (dom *domain) attempts() bool {
	return dom.stage == leased || dom.stage == fresh && !dom.dead()
}

// owned returns the owner of that name, new if need be. The lock is held.
func (d *Dispatcher) owned(name string) *owner {
	o := d.owners[name]
	if o == nil {
		o = &owner{name: name, line: d.slots.join(name, &d.share)}
		o.line.of, o.line.wake = o, func() { go d.useSlot(o.line) }
		d.owners[name] = o
	}
	return o
}

// ownerOf returns the owner of a domain: the one without a name if Config.Owner is nil, or panics.
func (d *Dispatcher) ownerOf(domain string) (name string) {
	if d.cfg.Owner == nil {
		return ""
	}
	defer func() {
		if value := recover(); value != nil {
			name = ""
			d.observe(Event{Kind: CallbackFailed, Domain: domain, Err: panicked("Owner", value)})
		}
	}()
	return d.cfg.Owner(domain)
}

// ownersOf returns the owners of these records' domains; nil if there is only one owner.
func (d *Dispatcher) ownersOf(records []Record) map[string]string {
	if d.cfg.Owner == nil {
		return nil
	}
	of := map[string]string{}
	for _, r := range records {
		if _, known := of[r.Domain]; !known {
			of[r.Domain] = d.ownerOf(r.Domain)
		}
	}
	return of
}

// forget forgets a domain in which nothing is left to remember, and its owner with the last one. The lock is held.
func (d *Dispatcher) forget(dom *domain) {
	delete(d.domains, dom.name)
	if dom.of.domains--; dom.of.empty() {
		d.forgetOwner(dom.of)
	}
}

// empty: nothing of o is left to remember.
func (o *owner) empty() bool { return o.domains == 0 && !o.behind && o.name != "" }

// forgetOwner forgets an owner. The lock is held.
func (d *Dispatcher) forgetOwner(o *owner) {
	o.line.leave()
	delete(d.owners, o.name)
}

// wants: the records of o that were put off are read again when half of its share is free. The lock is held.
func (d *Dispatcher) wants(o *owner) bool {
	return o.behind && o.buffered <= d.cfg.MaxPerOwner/2
}

// push has a domain wait for a slot. The lock is held.
func (o *owner) push(dom *domain) {
	dom.state = ready
	dom.key, _ = dom.low()
	switch {
	case !dom.attempts():
		heap.Push(&o.bookkeeping, dom)
	case dom.suspect:
		heap.Push(&o.suspects, dom)
	default:
		heap.Push(&o.ready, dom)
	}
}

// requestSlot queues o for a slot if one of its domains needs nothing else. The lock is held.
func (d *Dispatcher) requestSlot(o *owner) {
	if len(o.bookkeeping) > 0 || len(o.ready) > 0 || len(o.suspects) > 0 && d.trial == nil && !d.trialElsewhere {
		o.line.request(len(o.bookkeeping) > 0)
	}
}

// requestForSuspects is requestSlot for the owners that have suspects. The lock is held.
func (d *Dispatcher) requestForSuspects() {
	for _, o := range d.owners {
		if len(o.suspects) > 0 {
			d.requestSlot(o)
		}
	}
}

// next takes out the domain of o that is next, nil if there is none: one without an attempt to make, or else the one with the lowest offset, of the suspects only
// while none is on trial; a suspect whose partition's turn has come is before all. The lock is held.
func (d *Dispatcher) next(o *owner) *domain {
	from := &o.ready
	if len(o.bookkeeping) > 0 {
		from = &o.bookkeeping
	} else if d.trial == nil && len(o.suspects) > 0 && (d.granted || len(o.ready) == 0 || o.suspects[0].key < o.ready[0].key) {
		took := 0
		if !d.granted {
			took, _ = d.trials.take(1)
		}
		if d.granted || took > 0 {
			from, d.granted = &o.suspects, false
		} else {
			d.trialElsewhere = true
		}
	}
	if len(*from) == 0 {
		return nil
	}
	dom := heap.Pop(from).(*domain)
	dom.state, dom.paced, dom.asks = working, false, from != &o.bookkeeping
	if from == &o.suspects {
		d.trial = dom
	}
	return dom
}

// use takes out the domain that a slot goes to. Without one it gives the slot back. The lock is held.
func (d *Dispatcher) use(l *line) *domain {
	for l != nil {
		if dom := d.next(l.of); dom != nil {
			d.requestSlot(l.of)
			return dom
		}
		l.answered(false, 0)
		l = l.give(0)
	}
	return nil
}

// emptyLines takes out all that waits for a slot. The lock is held.
func (d *Dispatcher) emptyLines() {
	for _, o := range d.owners {
		o.bookkeeping, o.ready, o.suspects = nil, nil, nil
	}
}

// leaveLines removes all owners of this partition from the queue for slots.
func (d *Dispatcher) leaveLines() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.owners {
		o.line.leave()
	}
}

// useSlot uses a slot that was waited for.
func (d *Dispatcher) useSlot(l *line) {
	d.mu.Lock()
	dom := d.use(l)
	if dom != nil {
		d.active++
	}
	d.mu.Unlock()
	d.work(dom)
}

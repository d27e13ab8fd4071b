// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file is one owner's domains in this partition: the ready ones, and their order.

import "container/heap"

// owner has some of the domains. Records beyond MaxPerOwner are deferred, like those beyond MaxPerDomain: one offset is
// remembered, from which they are read again. Guarded by Dispatcher.mu.
type owner struct {
	name     string
	waiter   *waiter
	domains  int  // remembered
	deferred mark // as a domain's
	room     int  // of MaxBuffered, for their queues

	// The ready domains. A suspect runs only while no other does.
	bookkeeping byOffset // the next step is not an attempt
	ready       byOffset
	suspects    byOffset
}

// ownerLocked returns the owner of that name, new if need be.
func (d *Dispatcher) ownerLocked(name string) *owner {
	o := d.owners[name]
	if o == nil {
		o = &owner{name: name, waiter: d.slots.join(name, &d.account)}
		o.waiter.domains, o.waiter.wake = o, func() { go d.useSlot(o.waiter) }
		d.owners[name] = o
	}
	return o
}

// ownerOf returns the owner of a domain: "" if Config.Owner is nil or panics.
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

// ownersOf returns the owners of these records' domains; nil without a Config.Owner.
func (d *Dispatcher) ownersOf(records []Record) map[string]string {
	if d.cfg.Owner == nil {
		return nil
	}
	owners := map[string]string{}
	for _, r := range records {
		if _, known := owners[r.Domain]; !known {
			owners[r.Domain] = d.ownerOf(r.Domain)
		}
	}
	return owners
}

// forgetLocked deletes an empty domain, and its owner with the last one.
func (d *Dispatcher) forgetLocked(dom *domain) {
	delete(d.domains, dom.name)
	delete(d.resting, dom)
	if dom.owner.domains--; dom.owner.empty() {
		d.forgetOwnerLocked(dom.owner)
	}
}

// empty reports whether o may be forgotten.
func (o *owner) empty() bool { return o.domains == 0 && !o.deferred.set && o.name != "" }

func (d *Dispatcher) forgetOwnerLocked(o *owner) {
	o.waiter.leave()
	delete(d.owners, o.name)
}

// wantsReread reports whether the deferred records of o are to be read now: when half of MaxPerOwner is free.
func (o *owner) wantsReread(cfg Config) bool {
	return o.deferred.set && o.room <= cfg.MaxPerOwner/2
}

// push makes a domain ready: it waits for a slot, for an attempt or for another step.
func (o *owner) push(dom *domain, attempt bool) {
	dom.place = ready
	dom.priority = dom.low().offset
	switch {
	case !attempt:
		heap.Push(&o.bookkeeping, dom)
	case dom.tenure == suspect:
		heap.Push(&o.suspects, dom)
	default:
		heap.Push(&o.ready, dom)
	}
}

// requestSlotLocked asks for a slot if a domain of o lacks nothing else.
func (d *Dispatcher) requestSlotLocked(o *owner) {
	if len(o.bookkeeping) > 0 || len(o.ready) > 0 || len(o.suspects) > 0 && d.onTrial == nil && !d.trialElsewhere {
		o.waiter.request(len(o.bookkeeping) > 0)
	}
}

// requestForSuspectsLocked asks for slots for the owners that have suspects, and reports whether there are any.
func (d *Dispatcher) requestForSuspectsLocked() (ready bool) {
	for _, o := range d.owners {
		if len(o.suspects) > 0 {
			ready = true
			d.requestSlotLocked(o)
		}
	}
	return ready
}

// nextDomainLocked removes the next domain of o from its heap and returns it, nil if there is none: one whose step is not an
// attempt, or else the one with the lowest offset. A suspect is next only while none is on trial, and before all others when
// this partition has been granted the trial.
func (d *Dispatcher) nextDomainLocked(o *owner) *domain {
	from := &o.ready
	if len(o.bookkeeping) > 0 {
		from = &o.bookkeeping
	} else if d.onTrial == nil && len(o.suspects) > 0 &&
		(d.trialGranted || len(o.ready) == 0 || o.suspects[0].priority < o.ready[0].priority) {
		acquired := 0
		if !d.trialGranted {
			acquired, _ = d.trials.acquire(1)
		}
		if d.trialGranted || acquired > 0 {
			from, d.trialGranted = &o.suspects, false
		} else {
			d.trialElsewhere = true
		}
	}
	if len(*from) == 0 {
		return nil
	}
	dom := heap.Pop(from).(*domain)
	dom.place = working
	if from == &o.suspects {
		d.onTrial = dom
	}
	return dom
}

// domainForSlotLocked returns the domain that a granted slot is for, now working. Without one it releases the slot.
func (d *Dispatcher) domainForSlotLocked(w *waiter) *domain {
	for w != nil {
		if dom := d.nextDomainLocked(w.domains); dom != nil {
			d.requestSlotLocked(w.domains)
			return dom
		}
		w.rateAnswered(false, 0)
		w = w.release(0)
	}
	return nil
}

// clearReadyLocked empties the heaps of all owners.
func (d *Dispatcher) clearReadyLocked() {
	for _, o := range d.owners {
		o.bookkeeping, o.ready, o.suspects = nil, nil, nil
	}
}

// leaveSlots removes all owners of this partition from the queue for slots.
func (d *Dispatcher) leaveSlots() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.owners {
		o.waiter.leave()
	}
}

// useSlot works with a slot that was granted to w.
func (d *Dispatcher) useSlot(w *waiter) {
	d.mu.Lock()
	dom := d.domainForSlotLocked(w)
	if dom != nil {
		d.active++
	}
	d.mu.Unlock()
	d.work(dom)
}

// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file queues fetched records, defers those without room to a later read, and tracks what was read. A record is offered to
// the ledger when it is the next of its domain and a slot is free.

import (
	"slices"
	"time"
)

// arrivals are the records of one domain in one read.
type arrivals struct {
	domain   string
	owner    string
	items    []item
	room     int  // of MaxBuffered
	deferred mark // the records from here on have to be read again
}

// accept queues fetched records.
func (d *Dispatcher) accept(w window) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, full, end := d.selectLocked(w)
	d.enqueueLocked(all, full, w.first, end)
}

// selectLocked returns the records that are new to their domains and have room; of each owner without room, the offset from
// which its records are deferred; and the end of the part of the window that was examined.
func (d *Dispatcher) selectLocked(w window) (all []*arrivals, full map[string]int64, end int64) {
	byDomain, taken, full := map[string]*arrivals{}, map[string]int{}, map[string]int64{}
	room, _ := d.records.acquire(d.roomOf(w.records))
	defer func() { d.records.release(room) }() // or takes what the last record has of more
	now := time.Now()
	for _, r := range w.records {
		name := w.owners[r.Domain]
		dom, a, own := d.domains[r.Domain], byDomain[r.Domain], d.owners[name]
		_, ownerFull := full[name]
		read := d.position // every record of the owner below was queued, or its domain is deferred
		if own != nil && own.deferred.set {
			read = own.deferred.offset
		}
		deferred := dom != nil && dom.deferred.set // and then from an offset below read
		switch {
		case ownerFull, a != nil && a.deferred.set: // no more of this read
		case deferred && (dom.deferred.offset < w.first || r.Offset < dom.deferred.offset): // an earlier one is next; or it was queued
		case !deferred && r.Offset < read: // it was queued
		case r.Offset >= read && read < w.first: // an earlier one of its owner comes first
		case room <= 0:
			return all, full, r.Offset
		default:
			noRoom := taken[name] >= d.cfg.MaxPerOwner || own != nil && own.room+taken[name] >= d.cfg.MaxPerOwner
			if noRoom && r.Offset >= read {
				full[name] = r.Offset
				break
			}
			if a == nil {
				a = &arrivals{domain: r.Domain, owner: name}
				byDomain[r.Domain], all = a, append(all, a)
			}
			queued := a.room
			if dom != nil {
				queued += dom.room
			}
			if noRoom || queued >= d.cfg.MaxPerDomain || deferred && dom.rests() {
				a.deferred = mark{true, r.Offset}
				break
			}
			n := roomOf(&d.cfg, r)
			a.items = append(a.items, item{Record: r, room: n, since: now})
			a.room += n
			taken[name] += n
			room -= n
		}
	}
	return all, full, w.end
}

// roomOf returns as how many records these count.
func (d *Dispatcher) roomOf(records []Record) (room int) {
	for _, r := range records {
		room += roomOf(&d.cfg, r)
	}
	return room
}

// enqueueLocked appends the selected records to their queues, and advances the position and the deferrals past all examined
// records.
func (d *Dispatcher) enqueueLocked(all []*arrivals, full map[string]int64, from, end int64) {
	now := time.Now()
	d.position = max(d.position, end)
	deferredNow := map[*domain]bool{}
	for _, a := range all {
		dom := d.domainLocked(a.domain, a.owner)
		dom.queue, dom.room = append(dom.queue, a.items...), dom.room+a.room
		d.buffered += len(a.items)
		dom.owner.room += a.room
		d.restLocked(dom)
		if a.deferred.set {
			deferredNow[dom] = true
			dom.deferred = a.deferred
		}
	}
	for name, offset := range full {
		own := d.ownerLocked(name)
		if !own.deferred.set {
			d.deferredOwners = append(d.deferredOwners, own)
		}
		own.deferred = mark{true, offset}
	}
	d.deferredOwners = slices.DeleteFunc(d.deferredOwners, func(own *owner) bool {
		if _, again := full[own.name]; !again {
			own.deferred = own.deferred.skip(from, end)
		}
		if own.deferred = own.deferred.below(d.position); own.empty() {
			d.forgetOwnerLocked(own)
		}
		return !own.deferred.set
	})
	d.watched = slices.DeleteFunc(d.watched, func(dom *domain) bool {
		if !deferredNow[dom] {
			dom.deferred = dom.deferred.skip(from, end)
		}
		if dom.deferred = dom.deferred.below(d.position); dom.owner.deferred.set {
			dom.deferred = dom.deferred.below(dom.owner.deferred.offset)
		}
		d.placeLocked(dom, now)
		dom.watched = dom.deferred.set || dom.place == idle && !dom.empty()
		return !dom.watched
	})
}

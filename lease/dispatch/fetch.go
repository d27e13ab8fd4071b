// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file is the fetch loop: where to read next, how much, and when to interrupt a waiting Fetch.

import (
	"context"
	"slices"
	"sort"
)

const batch = 256 // records asked for at once, at most

// fetch reads until the drain begins.
func (d *Dispatcher) fetch() {
	var read windows
	for failures := 0; d.runCtx.Err() == nil; {
		if !d.mayRead() {
			d.awaitRoom()
			continue
		}
		ctx, cancel := context.WithCancel(d.runCtx)
		from, limit, deferrals := d.nextRead(cancel)
		if deferrals == 0 {
			read = nil
		}
		if limit == 0 {
			cancel()
			d.awaitRoom()
			continue
		}
		if w := read.at(from); w != nil {
			cancel()
			d.accept(*w)
			continue
		}
		limit = read.until(from, limit)
		records, err := d.partition.Source.Fetch(ctx, from, limit)
		interrupted := ctx.Err() != nil
		d.mu.Lock()
		d.cancelFetch = nil
		d.mu.Unlock()
		cancel()
		if len(records) > 0 {
			err = ordered(from, records)
		} else if err == nil {
			err = errNothing
		}
		switch {
		case err == nil && !d.mayRead(): // it is perhaps of another log, and is read again
		case err == nil:
			failures = 0
			if !d.tells() {
				d.clearRewound()
			}
			records = records[:min(len(records), limit)]
			d.size = (d.roomOf(records) + len(records) - 1) / len(records)
			w := window{from, records[len(records)-1].Offset + 1, records, d.ownersOf(records), 0}
			if again := d.worthKeeping(w); len(again.records) > 0 {
				again.room = d.roomOf(again.records)
				read.keep(again, d.records.part())
			}
			d.accept(w)
		case d.endIfLost(err): // runCtx is done
		case len(records) > 0, !interrupted:
			failures++
			d.noteRewound(err)
			wait := d.cfg.errorPause(failures, random())
			d.observe(Event{Kind: FetchFailed, Offset: from, Err: err, Wait: wait})
			sleep(d.runCtx, wait)
		}
	}
}

// windows cache the reads of deferred records, the most recently used first: a domain takes MaxPerDomain records of a read and
// comes back for more, which would otherwise be read from the Source each time.
type windows []window

// window holds every record from first to before end that a domain may lack.
type window struct {
	first, end int64
	records    []Record
	owners     map[string]string // of the domains
	room       int               // as how many records they count
}

// at returns the window that offset is in, without the records below; nil if none is kept.
func (ws *windows) at(offset int64) *window {
	for i, w := range *ws {
		if w.first <= offset && offset < w.end {
			copy((*ws)[1:i+1], *ws)
			(*ws)[0] = w
			from := sort.Search(len(w.records), func(i int) bool { return w.records[i].Offset >= offset })
			return &window{offset, w.end, w.records[from:], w.owners, 0}
		}
	}
	return nil
}

// until returns limit, or less where a window begins sooner.
func (ws *windows) until(offset int64, limit int) int {
	for _, w := range *ws {
		if gap := w.first - offset; gap > 0 && gap < int64(limit) {
			limit = int(gap)
		}
	}
	return limit
}

// keep adds w, and drops the least recently used windows until what is kept counts as no more than most records.
func (ws *windows) keep(w window, most int) {
	*ws = slices.Insert(*ws, 0, w)
	kept := 0
	for i, w := range *ws {
		if kept += w.room; kept > most {
			*ws = slices.Delete(*ws, i, len(*ws))
			return
		}
	}
}

// worthKeeping returns the records of w that may have to be read again, if w is not a first read. A domain without a deferral, of
// itself or of its owner, has queued everything below position, and will never lack a record there.
func (d *Dispatcher) worthKeeping(w window) window {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := window{first: w.first, end: w.end, owners: w.owners}
	if w.first >= d.position {
		return kept
	}
	for _, r := range w.records {
		dom, own := d.domains[r.Domain], d.owners[w.owners[r.Domain]]
		if r.Offset >= d.position || dom != nil && dom.deferred.upTo(r.Offset) || own != nil && own.deferred.upTo(r.Offset) {
			kept.records = append(kept.records, r)
		}
	}
	return kept
}

// deferralsLocked returns how many domains and owners have to be read again.
func (d *Dispatcher) deferralsLocked() int {
	n := len(d.deferredOwners)
	for _, dom := range d.watched {
		if dom.deferred.set {
			n++
		}
	}
	return n
}

// nextRead returns where to read and how much: first the lowest deferred records that have room, then unread ones. A limit of 0
// means no room. deferrals is how many domains and owners have to be read again.
func (d *Dispatcher) nextRead(cancel context.CancelFunc) (from int64, limit, deferrals int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, room := d.records.acquire(0)
	if room == 0 || len(d.deferredOwners) > 0 {
		d.shedLocked()
		_, room = d.records.acquire(0)
	}
	from, deferrals, d.cancelFetch = d.position, d.deferralsLocked(), cancel
	if again := d.nextRereadLocked(); again.set && room > 0 {
		from, limit, d.cancelFetch = again.offset, batch, nil
	} else if deferrals < d.cfg.MaxBuffered && room > 0 {
		limit = max(1, min(batch, room/max(1, d.size)))
	}
	d.paused = limit == 0
	return from, limit, deferrals
}

// nextRereadLocked returns the offset to read deferred records from.
func (d *Dispatcher) nextRereadLocked() (from mark) {
	for _, dom := range d.watched {
		if dom.wantsReread(d.cfg) {
			from = from.lower(dom.deferred)
		}
	}
	for _, o := range d.deferredOwners {
		if o.wantsReread(d.cfg) {
			from = from.lower(o.deferred)
		}
	}
	return from
}

// wantsReread reports whether the deferred records of dom are to be read now: when half of MaxPerDomain is free, so that one read
// serves many records, its owner has room, and it does not rest.
func (dom *domain) wantsReread(cfg Config) bool {
	return dom.deferred.set && !dom.rests() && dom.room <= cfg.MaxPerDomain/2 && dom.owner.room < cfg.MaxPerOwner
}

// signalFetchLocked tells the fetch loop that there is more room, by what dom has given back, and cancels a Fetch that waits at
// the end of the log when deferred records of dom or its owner are to be read.
func (d *Dispatcher) signalFetchLocked(dom *domain, room int) {
	d.signalRoom()
	if d.cancelFetch == nil {
		return
	}
	again := dom.wantsReread(d.cfg) || dom.owner.wantsReread(d.cfg)
	if left := dom.owner.room; !again && left < d.cfg.MaxPerOwner && left+room >= d.cfg.MaxPerOwner { // others of its owner had no room either
		again = d.nextRereadLocked().set
	}
	if again {
		d.cancelFetch()
	}
}

// awaitRoom waits until there may be room, or the drain begins.
func (d *Dispatcher) awaitRoom() {
	select {
	case <-d.wakeFetch:
	case <-d.runCtx.Done():
	}
}

// signalRoom wakes the fetch loop if it waits for room.
func (d *Dispatcher) signalRoom() {
	select {
	case d.wakeFetch <- struct{}{}:
	default:
	}
}

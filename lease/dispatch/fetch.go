package dispatch

// This file is the fetch loop: where to read next, how much, and when to interrupt a waiting Fetch.

import (
	"cmp"
	"context"
	"slices"
)

const batch = 256 // records asked for at once, at most

// fetch reads until the drain begins.
func (d *Dispatcher) fetch() {
	var read windows
	for failures := 0; d.soft.Err() == nil; {
		ctx, cancel := context.WithCancel(d.soft)
		from, limit := d.plan(cancel)
		if d.level() {
			read = nil
		}
		if limit == 0 {
			cancel()
			select {
			case <-d.wake:
			case <-d.soft.Done():
			}
			continue
		}
		if w := read.at(from); w != nil {
			cancel()
			d.accept(*w)
			continue
		}
		limit = read.until(from, limit)
		records, err := d.cfg.Source.Fetch(ctx, from, limit)
		interrupted := ctx.Err() != nil
		d.mu.Lock()
		d.stop = nil
		d.mu.Unlock()
		cancel()
		if len(records) > 0 {
			err = ordered(from, records)
		} else if err == nil {
			err = errNothing
		}
		switch {
		case err == nil:
			failures = 0
			records = records[:min(len(records), limit)]
			w := window{from, records[len(records)-1].Offset + 1, records, d.ownersOf(records)}
			if again := d.wanted(w); len(again.records) > 0 {
				read.keep(again, d.cfg.MaxBuffered)
			}
			d.accept(w)
		case d.endIfLost(err): // soft is done
		case len(records) > 0, !interrupted:
			failures++
			wait := d.cfg.errorPause(failures)
			d.observe(Event{Kind: FetchFailed, Offset: from, Err: err, Wait: wait})
			sleep(d.soft, wait)
		}
	}
}

// windows are what was read again, the last one first: a domain that is behind takes its share of a reading and comes back for the
// next, which would otherwise be read once for each share.
type windows []window

// window has every record from first to before end that may be wanted.
type window struct {
	first, end int64
	records    []Record
	owners     map[string]string // of the domains
}

// at returns the window that offset is in, without what is below, and nil if none is kept.
func (ws *windows) at(offset int64) *window {
	for i, w := range *ws {
		if w.first <= offset && offset < w.end {
			copy((*ws)[1:i+1], *ws)
			(*ws)[0] = w
			from, _ := slices.BinarySearchFunc(w.records, offset, func(r Record, offset int64) int { return cmp.Compare(r.Offset, offset) })
			return &window{offset, w.end, w.records[from:], w.owners}
		}
	}
	return nil
}

// until is limit, or less where a window begins sooner.
func (ws *windows) until(offset int64, limit int) int {
	for _, w := range *ws {
		if gap := w.first - offset; gap > 0 && gap < int64(limit) {
			limit = int(gap)
		}
	}
	return limit
}

// keep adds w, and drops what was used the longest time ago until no more than most records are kept.
func (ws *windows) keep(w window, most int) {
	*ws = slices.Insert(*ws, 0, w)
	kept := 0
	for i, w := range *ws {
		if kept += len(w.records); kept > most {
			*ws = slices.Delete(*ws, i, len(*ws))
			return
		}
	}
}

// wanted is what may be wanted of w once more, if it was read again. Where neither a domain nor its owner is behind, it has taken everything below high,
// and will never be behind there.
func (d *Dispatcher) wanted(w window) window {
	d.mu.Lock()
	defer d.mu.Unlock()
	wanted := window{first: w.first, end: w.end, owners: w.owners}
	if w.first >= d.high {
		return wanted
	}
	for _, r := range w.records {
		dom, own := d.domains[r.Domain], d.owners[w.owners[r.Domain]]
		if r.Offset >= d.high || dom != nil && dom.behind && r.Offset >= dom.mark || own != nil && own.behind && r.Offset >= own.mark {
			wanted.records = append(wanted.records, r)
		}
	}
	return wanted
}

// level reports whether no domain and no owner is behind.
func (d *Dispatcher) level() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.behind == 0
}

// plan returns where to read and how much: first for the domain or owner that is furthest behind and has room, then unread records.
// A limit of 0 means no room.
func (d *Dispatcher) plan(stop context.CancelFunc) (from int64, limit int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, room := d.records.take(0)
	from, d.stop = d.high, stop
	if again, ok := d.nextReread(); ok && room > 0 {
		from, limit, d.stop = again, batch, nil
	} else if d.behind < d.cfg.MaxBuffered {
		limit = min(batch, room)
	}
	d.paused = limit == 0
	return from, limit
}

// nextReread returns the offset to read again from. The lock is held.
func (d *Dispatcher) nextReread() (from int64, ok bool) {
	if d.behind == 0 {
		return 0, false
	}
	for _, dom := range d.attended {
		if dom.wants(d.cfg) && (!ok || dom.mark < from) {
			from, ok = dom.mark, true
		}
	}
	for _, o := range d.lagging {
		if d.wants(o) && (!ok || o.mark < from) {
			from, ok = o.mark, true
		}
	}
	return from, ok
}

// wants: a domain is read again when half of its share is free, so that one reading serves many records, and its owner has room.
func (dom *domain) wants(cfg Config) bool {
	return dom.behind && len(dom.queue) <= cfg.MaxPerDomain/2 && dom.of.buffered < cfg.MaxPerOwner
}

// signalFetch tells the fetch loop that there is more room, and calls it back from waiting at the end of the log when dom wants to be
// read again. The lock is held.
func (d *Dispatcher) signalFetch(dom *domain) {
	d.readOn()
	if d.stop == nil {
		return
	}
	again := dom.wants(d.cfg) || d.wants(dom.of)
	if !again && dom.of.buffered == d.cfg.MaxPerOwner-1 { // others of its owner had no room either
		_, again = d.nextReread()
	}
	if again {
		d.stop()
	}
}

// readOn wakes the fetch loop.
func (d *Dispatcher) readOn() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

package dispatch

// This file queues fetched records, marks those without room for a later read, and tracks what was read. A record is offered to the
// ledger when its turn comes.

import (
	"slices"
	"time"
)

// arrivals are the records of one domain in one reading.
type arrivals struct {
	domain  string
	owner   string
	records []Record
	// off: the records from mark on have to be read again.
	off  bool
	mark int64
}

// accept queues fetched records.
func (d *Dispatcher) accept(w window) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, off, end := d.choose(w)
	d.enter(all, off, w.first, end)
}

// choose says which of the records are new to their domains and have room, and from where on those of an owner who has none were put off. Everything
// below end has been looked at. The lock is held.
func (d *Dispatcher) choose(w window) (all []*arrivals, off map[string]int64, end int64) {
	of, taken, off := map[string]*arrivals{}, map[string]int{}, map[string]int64{}
	room, _ := d.records.take(len(w.records))
	defer func() { d.records.give(room) }()
	for _, r := range w.records {
		name := w.owners[r.Domain]
		dom, a, own := d.domains[r.Domain], of[r.Domain], d.owners[name]
		_, full := off[name]
		read := d.high // every record of the owner below was taken, or is of a domain that is behind it
		if own != nil && own.behind {
			read = own.mark
		}
		behind := dom != nil && dom.behind // and then its mark is below read
		switch {
		case full, a != nil && a.off: // it does not take more of this reading
		case behind && (dom.mark < w.first || r.Offset < dom.mark): // one before it has to come first; or it was taken before
		case !behind && r.Offset < read: // it was taken before
		case r.Offset >= read && read < w.first: // one of its owner's before it has to come first
		case room == 0:
			return all, off, r.Offset
		default:
			full := taken[name] >= d.cfg.MaxPerOwner || own != nil && own.buffered+taken[name] >= d.cfg.MaxPerOwner
			if full && r.Offset >= read {
				off[name] = r.Offset
				break
			}
			if a == nil {
				a = &arrivals{domain: r.Domain, owner: name}
				of[r.Domain], all = a, append(all, a)
			}
			have := len(a.records)
			if dom != nil {
				have += len(dom.queue)
			}
			if full || have >= d.cfg.MaxPerDomain {
				a.off, a.mark = true, r.Offset
				break
			}
			a.records = append(a.records, r)
			taken[name]++
			room--
		}
	}
	return all, off, w.end
}

// enter appends the chosen records to their queues, and advances high and the marks past all examined records. The lock is held.
func (d *Dispatcher) enter(all []*arrivals, off map[string]int64, from, end int64) {
	now := time.Now()
	d.high = max(d.high, end)
	put := map[*domain]bool{} // put off in this reading
	for _, a := range all {
		dom := d.domain(a.domain, a.owner)
		for _, r := range a.records {
			dom.queue = append(dom.queue, item{Record: r, since: now})
		}
		d.buffered += len(a.records)
		dom.of.buffered += len(a.records)
		if a.off {
			put[dom] = true
			d.markBehind(&dom.lag, a.mark)
		}
	}
	for name, mark := range off {
		own := d.owned(name)
		if !own.behind {
			d.lagging = append(d.lagging, own)
		}
		d.markBehind(&own.lag, mark)
	}
	d.lagging = slices.DeleteFunc(d.lagging, func(own *owner) bool {
		if _, full := off[own.name]; !full {
			d.advanceMark(&own.lag, from, end)
		}
		if d.clearIfCaughtUp(&own.lag, d.high); own.empty() {
			d.forgetOwner(own)
		}
		return !own.behind
	})
	d.attended = slices.DeleteFunc(d.attended, func(dom *domain) bool {
		if !put[dom] {
			d.advanceMark(&dom.lag, from, end)
		}
		if d.clearIfCaughtUp(&dom.lag, d.high); dom.of.behind {
			d.clearIfCaughtUp(&dom.lag, dom.of.mark)
		}
		d.makeRunnable(dom)
		dom.attended = dom.behind || dom.state == idle && !dom.empty()
		return !dom.attended
	})
}

// markBehind records that l has to be read again from mark on. The lock is held.
func (d *Dispatcher) markBehind(l *lag, mark int64) {
	if !l.behind {
		d.behind++
	}
	l.behind, l.mark = true, mark
}

// advanceMark moves a mark past the examined records. The lock is held.
func (d *Dispatcher) advanceMark(l *lag, from, end int64) {
	if l.behind && l.mark >= from && l.mark < end {
		l.mark = end
	}
}

// clearIfCaughtUp marks l as no longer behind if it has everything below high. The lock is held.
func (d *Dispatcher) clearIfCaughtUp(l *lag, high int64) {
	if l.behind && l.mark >= high {
		l.behind = false
		d.behind--
	}
}

package dispatch

// This file takes records in: it puts off what has no room, and keeps account of what was read. The ledger hears of a record when it is its turn.

import "time"

// arrivals are the records of one domain in one reading.
type arrivals struct {
	domain  string
	records []Record
	// off: the records from mark on have to be read again.
	off  bool
	mark int64
}

// accept takes in what was read.
func (d *Dispatcher) accept(w window) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, end := d.choose(w)
	d.enter(all, w.first, end)
}

// choose says which of the records are new to their domains and have room. Everything below end has been looked at. The lock is held.
func (d *Dispatcher) choose(w window) (all []*arrivals, end int64) {
	of := map[string]*arrivals{}
	room, _ := d.records.take(len(w.records))
	defer func() { d.records.give(room) }()
	for _, r := range w.records {
		dom, a := d.domains[r.Domain], of[r.Domain]
		behind := dom != nil && dom.behind
		switch {
		case a != nil && a.off: // it does not take more of this reading
		case behind && (dom.mark < w.first || r.Offset < dom.mark): // one before it has to come first; or it was taken before
		case !behind && r.Offset < d.high: // it was taken before
		case room == 0:
			return all, r.Offset
		default:
			if a == nil {
				a = &arrivals{domain: r.Domain}
				of[r.Domain], all = a, append(all, a)
			}
			have := len(a.records)
			if dom != nil {
				have += len(dom.queue)
			}
			if have >= d.cfg.MaxPerDomain || dom != nil && dom.place == away {
				a.off, a.mark = true, r.Offset
				break
			}
			a.records = append(a.records, r)
			room--
		}
	}
	return all, w.end
}

// enter puts what was taken into the queues, and moves high and the marks over what was looked at. The lock is held.
func (d *Dispatcher) enter(all []*arrivals, from, end int64) {
	now := time.Now()
	d.high = max(d.high, end)
	put := map[*domain]bool{} // put off in this reading
	for _, a := range all {
		dom := d.domain(a.domain)
		for _, r := range a.records {
			dom.queue = append(dom.queue, item{Record: r, since: now})
		}
		d.buffered += len(a.records)
		if a.off {
			if put[dom] = true; !dom.behind {
				dom.behind = true
				d.behind++
			}
			dom.mark = a.mark
		}
	}
	for _, dom := range d.domains {
		if dom.behind && !put[dom] && dom.mark >= from && dom.mark < end {
			dom.mark = end
		}
		if dom.behind && dom.mark >= d.high {
			dom.behind = false
			d.behind--
		}
		d.rise(dom)
	}
}

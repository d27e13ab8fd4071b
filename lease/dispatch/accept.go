package dispatch

// This file takes records in: it offers them to the ledger, puts off what has no room, and keeps account of what was read.

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/lease"
)

// offering is how many Offers are under way at once: an engine behind a network is worth asking side by side.
const offering = 16

// arrivals are the records of one domain in one reading.
type arrivals struct {
	domain  string
	owner   string
	records []Record
	items   []item // of those that the ledger has taken or given up
	done    []int64
	// off: the records from mark on have to be read again.
	off  bool
	mark int64
	err  error // why, if it was the ledger
}

// accept takes in what was read.
func (d *Dispatcher) accept(w window) {
	all, off, end := d.choose(w)
	d.offer(all)
	d.enter(all, off, w.first, end)
	for _, a := range all {
		if a.err != nil {
			d.unless(d.soft, Event{Kind: LedgerError, Domain: a.domain, Offset: a.mark, Err: a.err})
		}
		for _, offset := range a.done {
			d.observe(Event{Kind: Skipped, Domain: a.domain, Offset: offset})
		}
	}
}

// choose says which of the records are new to their domains and have room, and from where on those of an owner who has none were put off. Everything
// below end has been looked at.
func (d *Dispatcher) choose(w window) (all []*arrivals, off map[string]int64, end int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
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
			if full || have >= d.cfg.MaxPerDomain || dom != nil && dom.place == away {
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

// offer tells the ledger of the records, those of one domain one after the other.
func (d *Dispatcher) offer(all []*arrivals) {
	var next atomic.Int64
	some := func() {
		for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
			d.offerEach(all[i])
		}
	}
	var group sync.WaitGroup
	for range min(offering, len(all)) - 1 {
		group.Go(some)
	}
	some()
	group.Wait()
}

func (d *Dispatcher) offerEach(a *arrivals) {
	now := time.Now()
	for _, r := range a.records {
		status, err := d.cfg.Ledger.Offer(d.soft, r.Domain, r.Offset)
		switch {
		case errors.Is(err, lease.ErrInvalid): // no ledger will ever take it
			a.items = append(a.items, item{Record: r, since: now, dead: true, cause: err})
		case err != nil:
			a.off, a.mark, a.err = true, r.Offset, err
			return
		case status == lease.AlreadyProcessed:
			a.done = append(a.done, r.Offset)
		default:
			a.items = append(a.items, item{Record: r, since: now, dead: status == lease.AlreadyFailed})
		}
	}
}

// enter puts what was taken into the queues, and moves high and the marks over what was looked at.
func (d *Dispatcher) enter(all []*arrivals, off map[string]int64, from, end int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.high = max(d.high, end)
	put := map[*domain]bool{} // put off in this reading
	for _, a := range all {
		dom := d.domain(a.domain, a.owner)
		dom.queue = append(dom.queue, a.items...)
		d.buffered += len(a.items)
		dom.of.buffered += len(a.items)
		d.count.skipped += uint64(len(a.done))
		d.records.give(len(a.records) - len(a.items))
		if a.err == nil && len(a.records) > 0 {
			dom.refused = 0
		}
		if a.off {
			put[dom] = true
			d.putOff(&dom.lag, a.mark)
		}
		if a.err != nil {
			d.later(dom)
		}
	}
	for name, mark := range off {
		d.putOff(&d.owned(name).lag, mark)
	}
	for name, own := range d.owners {
		if _, full := off[name]; !full {
			d.passed(&own.lag, from, end)
		}
		if d.caughtUp(&own.lag, d.high); own.empty() {
			d.disown(own)
		}
	}
	for _, dom := range d.domains {
		if !put[dom] {
			d.passed(&dom.lag, from, end)
		}
		if d.caughtUp(&dom.lag, d.high); dom.of.behind {
			d.caughtUp(&dom.lag, dom.of.mark)
		}
		d.rise(dom)
	}
}

// putOff has l behind from mark on. The lock is held.
func (d *Dispatcher) putOff(l *lag, mark int64) {
	if !l.behind {
		d.behind++
	}
	l.behind, l.mark = true, mark
}

// passed moves a mark over what was looked at. The lock is held.
func (d *Dispatcher) passed(l *lag, from, end int64) {
	if l.behind && l.mark >= from && l.mark < end {
		l.mark = end
	}
}

// caughtUp has l no longer behind if it has everything below high. The lock is held.
func (d *Dispatcher) caughtUp(l *lag, high int64) {
	if l.behind && l.mark >= high {
		l.behind = false
		d.behind--
	}
}

// later has a domain that the ledger refused read again after a pause. The lock is held.
func (d *Dispatcher) later(dom *domain) {
	dom.refused++
	wait := d.cfg.trouble(dom.refused)
	dom.again = time.Now().Add(wait)
	time.AfterFunc(wait, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.nudge(dom)
	})
}

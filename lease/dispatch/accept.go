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
	all, end := d.choose(w)
	d.offer(all)
	for _, a := range all {
		a.owner = d.ownerOf(a.domain)
	}
	d.enter(all, w.first, end)
	for _, a := range all {
		if a.err != nil {
			d.unless(d.soft, Event{Kind: LedgerError, Domain: a.domain, Offset: a.mark, Err: a.err})
		}
		for _, offset := range a.done {
			d.observe(Event{Kind: Skipped, Domain: a.domain, Offset: offset})
		}
	}
}

// choose says which of the records are new to their domains and have room. Everything below end has been looked at.
func (d *Dispatcher) choose(w window) (all []*arrivals, end int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
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
func (d *Dispatcher) enter(all []*arrivals, from, end int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.high = max(d.high, end)
	put := map[*domain]bool{} // put off in this reading
	for _, a := range all {
		dom := d.domain(a.domain, a.owner)
		dom.queue = append(dom.queue, a.items...)
		d.buffered += len(a.items)
		d.count.skipped += uint64(len(a.done))
		d.records.give(len(a.records) - len(a.items))
		if a.err == nil && len(a.records) > 0 {
			dom.refused = 0
		}
		if a.off {
			if put[dom] = true; !dom.behind {
				dom.behind = true
				d.behind++
			}
			dom.mark = a.mark
		}
		if a.err != nil {
			d.later(dom)
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

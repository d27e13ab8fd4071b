package dispatch

// This file reads: where next and how much, and what interrupts it.

import (
	"context"
	"time"
)

const batch = 256 // records asked for at once, at most

// fetch reads until the drain begins.
func (d *Dispatcher) fetch() {
	for failures := 0; d.soft.Err() == nil; {
		ctx, cancel := context.WithCancel(d.soft)
		from, limit := d.plan(cancel)
		if limit == 0 {
			cancel()
			select {
			case <-d.wake:
			case <-d.soft.Done():
			}
			continue
		}
		records, err := d.cfg.Source.Fetch(ctx, from, limit)
		interrupted := ctx.Err() != nil
		d.mu.Lock()
		d.stop = nil
		d.mu.Unlock()
		cancel()
		switch {
		case len(records) > 0:
			failures = 0
			d.accept(from, records[:min(len(records), limit)])
		case d.ousted(err) != nil: // soft is done
		case !interrupted:
			if failures++; err == nil {
				err = errNothing
			}
			wait := d.cfg.trouble(failures)
			d.observe(Event{Kind: FetchFailed, Offset: from, Err: err, Wait: wait})
			sleep(d.soft, wait)
		}
	}
}

// plan says where to read and how much. The domain that is furthest behind and has room comes first, then what has never been read.
// A limit of 0 says that there is no room.
func (d *Dispatcher) plan(stop context.CancelFunc) (from int64, limit int) {
	d.mu.Lock()
	_, room := d.records.take(0)
	from, d.stop = d.high, stop
	if again, ok := d.hungry(); ok && room > 0 {
		from, limit, d.stop = again, batch, nil
	} else if d.behind < d.cfg.MaxBuffered {
		limit = min(batch, room)
	}
	paused, buffered := limit == 0, d.buffered
	changed := d.paused != paused
	d.paused = paused
	d.mu.Unlock()
	switch {
	case changed && paused:
		d.observe(Event{Kind: Paused, Offset: from, Count: buffered})
	case changed:
		d.observe(Event{Kind: Resumed, Offset: from, Count: buffered})
	}
	return from, limit
}

// hungry is where to read again. The lock is held.
func (d *Dispatcher) hungry() (from int64, ok bool) {
	if d.behind == 0 {
		return 0, false
	}
	now := time.Now()
	for _, dom := range d.domains {
		if dom.wants(d.cfg.MaxPerDomain, now) && (!ok || dom.mark < from) {
			from, ok = dom.mark, true
		}
	}
	return from, ok
}

// wants: a domain is read again when half of its share is free, so that one reading serves many records.
func (dom *domain) wants(share int, now time.Time) bool {
	return dom.behind && dom.place != away && len(dom.queue) <= share/2 && !dom.again.After(now)
}

// nudge tells the fetch loop that there is more room, and calls it back from waiting at the end of the log when dom wants to be
// read again. The lock is held.
func (d *Dispatcher) nudge(dom *domain) {
	d.readOn()
	if d.stop != nil && dom.wants(d.cfg.MaxPerDomain, time.Now()) {
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

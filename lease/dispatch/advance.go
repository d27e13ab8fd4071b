package dispatch

// This file takes one domain one step further: the next lease, the handler, the outcome, the dead letter. Each step can be
// repeated, so that whatever the ledger refuses is simply done again later.

import (
	"context"
	"errors"
	"time"

	"github.com/stopbank/stopbank/lease"
)

// advance does what comes next in dom, and says how long to wait before the step after that.
func (d *Dispatcher) advance(dom *domain) (wait time.Duration) {
	switch dom.stage {
	case fresh, missing:
		if wait, dead := d.exhume(dom); dead {
			return wait
		}
		if dom.stage == fresh {
			wait = d.attempt(dom)
		}
	case leased:
		wait = d.attempt(dom)
	case ended, buried, fenced:
	}
	switch dom.stage {
	case ended:
		return d.settle(dom)
	case buried:
		return d.bury(dom)
	case fresh, missing, leased, fenced:
	}
	return wait
}

// attempt takes the domain's next lease, unless it has one, and calls the handler: both under one admission, so that nothing
// is leased while it waits for its turn.
func (d *Dispatcher) attempt(dom *domain) (wait time.Duration) {
	for refused := 1; ; refused++ {
		ran := false
		refusal := d.cfg.Concurrency.Do(d.soft, func() error {
			ran = true
			if d.soft.Err() != nil { // the drain has begun: nothing new
				return nil //nolint:nilerr // it is no failure of the handler's
			}
			if dom.stage == fresh {
				wait = d.acquire(dom)
			}
			if dom.stage != leased || wait > 0 { // its record is not here, or its retry is not due
				return nil
			}
			dom.err = d.handle(dom)
			dom.stage = ended
			return dom.err
		})
		if ran || d.soft.Err() != nil {
			return wait
		}
		if refused == 1 {
			d.observe(Event{Kind: Refused, Domain: dom.name, Err: refusal})
		}
		sleep(d.soft, step(time.Millisecond, 50*time.Millisecond, refused))
	}
}

// acquire asks for the lease on the domain's next offset, and finds its record.
func (d *Dispatcher) acquire(dom *domain) (wait time.Duration) {
	a, err := d.cfg.Ledger.AcquireNext(d.hard, dom.name)
	if err != nil {
		dom.unsure = true
		return d.troubled(dom, err)
	}
	switch a.Status {
	case lease.Acquired:
		d.hold(dom, a.Lease)
	case lease.Busy:
		return d.busy(dom)
	default:
		d.mu.Lock()
		dom.open = false
		d.mu.Unlock()
		wait = d.reoffer(dom)
	}
	dom.unsure, dom.trouble, dom.foreign = false, 0, 0
	return wait
}

// hold makes l the lease that dom works under, and leased its stage if the record is here, or will never be.
func (d *Dispatcher) hold(dom *domain, l lease.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dom.lease, dom.stage = l, missing
	dom.open, dom.at = true, l.Offset
	if dom.find(l.Offset) >= 0 || d.lost(dom, l.Offset) {
		dom.stage = leased
	}
}

// busy deals with a lease that is not ours. If the call before was cut off it is ours after all. Else somebody took it after the
// partition had become ours: somebody who has not noticed yet, and gets Grace to finish.
func (d *Dispatcher) busy(dom *domain) (wait time.Duration) {
	v, err := d.cfg.Ledger.Inspect(d.hard, dom.name)
	if err != nil {
		return d.troubled(dom, err)
	}
	if v.Lease == nil {
		return 0
	}
	if dom.unsure {
		l, err := d.cfg.Ledger.Reclaim(d.hard, dom.name, v.Lease.Token)
		if err != nil {
			return d.troubled(dom, err)
		}
		d.hold(dom, l)
		dom.unsure, dom.trouble = false, 0
		return 0
	}
	if dom.foreign != v.Lease.Token {
		dom.foreign, dom.foreignSince = v.Lease.Token, time.Now()
		dom.trouble = 0
		d.observe(Event{Kind: Foreign, Domain: dom.name, Offset: v.Lease.Offset, Token: v.Lease.Token})
	}
	if time.Since(dom.foreignSince) < d.cfg.Grace {
		dom.trouble++
		return min(d.cfg.trouble(dom.trouble), time.Until(dom.foreignSince.Add(d.cfg.Grace)))
	}
	l, f, err := d.inherit(d.hard, *v.Lease)
	if err != nil {
		return d.troubled(dom, err)
	}
	dom.foreign, dom.trouble = 0, 0
	if f.Status != lease.RetryScheduled {
		d.mu.Lock()
		dom.at, dom.open = f.Next, f.Status == lease.GiveUpNextHint
		d.mu.Unlock()
		return d.reoffer(dom) // if it is the queue's first it is a dead letter now
	}
	d.hold(dom, l)
	dom.due = d.cfg.due(l.AcquiredAt, time.Now(), l.RetryCount, d.cfg.Rand())
	return time.Until(dom.due)
}

// reoffer asks the ledger what became of the queue's first record, which it does not have in its backlog.
func (d *Dispatcher) reoffer(dom *domain) (wait time.Duration) {
	d.mu.Lock()
	var first item
	waiting := len(dom.queue) > 0
	if waiting {
		first = dom.queue[0]
	}
	d.mu.Unlock()
	if !waiting {
		return 0
	}
	status, err := d.cfg.Ledger.Offer(d.hard, dom.name, first.Offset)
	switch {
	case err != nil:
		return d.troubled(dom, err)
	case status == lease.AlreadyProcessed:
		d.finish(dom, first.Offset, dom.open, dom.at, &d.count.skipped)
		d.observe(Event{Kind: Skipped, Domain: dom.name, Offset: first.Offset})
	case status == lease.AlreadyFailed:
		d.mu.Lock()
		dom.queue[0].dead = true
		d.mu.Unlock()
	}
	return 0
}

// settle tells the ledger how the handler ended.
func (d *Dispatcher) settle(dom *domain) (wait time.Duration) {
	l := dom.lease
	if dom.err == nil {
		next, more, err := d.succeed(l)
		switch {
		case err == nil:
			d.finish(dom, l.Offset, more, next, &d.count.succeeded)
			d.observe(Event{Kind: Succeeded, Domain: dom.name, Offset: l.Offset, Token: l.Token, RetryCount: l.RetryCount, Took: time.Since(dom.began)})
			return 0
		case isFence(err):
			d.fence(dom, err)
			return 0
		}
		return d.troubled(dom, err)
	}
	if d.handling.Err() != nil {
		// The drain cut the handler off, which is no failure. The lease stays; who takes the partition next fails it once.
		dom.stage = leased
		return 0
	}
	f, err := d.fail(d.hard, l, dom.unsure)
	switch {
	case isFence(err):
		d.fence(dom, err)
		return 0
	case err != nil:
		dom.unsure = true
		return d.troubled(dom, err)
	}
	dom.unsure, dom.trouble = false, 0
	failed := Event{Kind: Retrying, Domain: dom.name, Offset: l.Offset, Token: l.Token, RetryCount: f.RetryCount, Err: dom.err, Took: time.Since(dom.began)}
	if f.Status == lease.RetryScheduled {
		dom.lease.RetryCount = f.RetryCount
		dom.due = d.cfg.due(l.AcquiredAt, time.Now(), f.RetryCount, d.cfg.Rand())
		dom.stage = leased
		d.tally(&d.count.retried)
		wait = time.Until(dom.due)
		failed.Wait = wait
		d.observe(failed)
		return wait
	}
	dom.stage = buried
	dom.after, dom.more = f.Next, f.Status == lease.GiveUpNextHint
	d.tally(&d.count.gaveUp)
	failed.Kind = GaveUp
	d.observe(failed)
	return d.bury(dom)
}

// bury tells of the record that was given up. Until that has worked it is not done.
func (d *Dispatcher) bury(dom *domain) (wait time.Duration) {
	if wait = d.write(dom, DeadLetter{Record: dom.work.Record, Lease: dom.lease, Err: dom.err}); wait == 0 {
		d.finish(dom, dom.work.Offset, dom.more, dom.after, &d.count.deadLettered)
	}
	return wait
}

// exhume tells of the queue's first record if that was given up in an earlier life. It comes before everything behind it, also before a
// lease that was inherited.
func (d *Dispatcher) exhume(dom *domain) (wait time.Duration, dead bool) {
	d.mu.Lock()
	var first item
	if dead = dom.dead(); dead {
		first = dom.queue[0]
	}
	d.mu.Unlock()
	if !dead {
		return 0, false
	}
	if wait = d.write(dom, DeadLetter{Record: first.Record, Err: first.cause}); wait == 0 {
		d.mu.Lock()
		d.count.deadLettered++
		d.leave(dom, first.Offset)
		d.mu.Unlock()
		dom.trouble = 0
	}
	return wait, true
}

// write writes a dead letter. A wait of 0 says that it was accepted.
func (d *Dispatcher) write(dom *domain, letter DeadLetter) (wait time.Duration) {
	if d.cfg.DeadLetter == nil {
		return 0
	}
	err := contained(func() error { return d.cfg.DeadLetter(d.handling, letter) })
	e := Event{Kind: DeadLettered, Domain: dom.name, Offset: letter.Record.Offset, Token: letter.Lease.Token, Err: letter.Err}
	if err != nil {
		dom.trouble++
		wait = max(d.cfg.trouble(dom.trouble), 1)
		e.Kind, e.Err, e.Wait = DeadLetterFailed, err, wait
	}
	d.observe(e)
	return wait
}

// finish forgets a record that is done, and counts it. If the ledger has more of the domain, next is its offset.
func (d *Dispatcher) finish(dom *domain, offset int64, more bool, next int64, counter *uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*counter++
	dom.open, dom.at = more, next
	dom.tenure = tenure{}
	d.leave(dom, offset)
}

// leave takes a record that is done out of the queue. The lock is held.
func (d *Dispatcher) leave(dom *domain, offset int64) {
	if dom.drop(offset) {
		d.buffered--
		d.records.give(1)
	}
	dom.again = time.Time{} // the ledger may have room now
	d.nudge(dom)
}

// fence leaves the domain to whoever has its lease now. Its records keep their places and hold the floor, so that a dispatcher
// that has lost its partition comes to rest instead of reading on.
func (d *Dispatcher) fence(dom *domain, err error) {
	d.mu.Lock()
	dom.stage = fenced
	for i := range dom.queue {
		dom.queue[i].Payload = nil
	}
	d.count.lost++
	d.mu.Unlock()
	d.observe(Event{Kind: Fenced, Domain: dom.name, Offset: dom.lease.Offset, Token: dom.lease.Token, RetryCount: dom.lease.RetryCount, Err: err})
}

// troubled is the pause after a refusal of the ledger.
func (d *Dispatcher) troubled(dom *domain, err error) (wait time.Duration) {
	dom.trouble++
	wait = d.cfg.trouble(dom.trouble)
	d.observe(Event{Kind: LedgerError, Domain: dom.name, Offset: dom.lease.Offset, Token: dom.lease.Token, Err: err, Wait: wait})
	return wait
}

// isFence: the lease that this token held is somebody else's, or was completed by somebody else.
func isFence(err error) bool {
	return errors.Is(err, lease.ErrTokenMismatch) || errors.Is(err, lease.ErrLeaseNotFound)
}

func sleep(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

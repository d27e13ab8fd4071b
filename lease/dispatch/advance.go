// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file advances one domain by one step: the next lease, the handler, the outcome, the dead letter. Every step may be
// repeated, so a call that the ledger rejects is made again later.

import (
	"context"
	"errors"
	"time"

	"github.com/stopbank/stopbank/lease"
)

// advance takes dom's next step, and returns the pause before the one after it.
func (d *Dispatcher) advance(dom *domain) (wait time.Duration) {
	switch dom.stage {
	case fresh, missing:
		if wait, below := d.review(dom); below {
			return wait
		}
		if wait, dead := d.resendDeadLetter(dom); dead {
			return wait
		}
		if dom.stage == fresh {
			wait = d.attempt(dom)
		}
	case leased:
		wait = d.attempt(dom)
	case fenced:
		return d.awaitOwnership(dom)
	case ended, givenUp:
	}
	switch dom.stage {
	case ended:
		return d.reportOutcome(dom)
	case givenUp:
		return d.sendDeadLetter(dom)
	case fresh, missing, leased, fenced:
	}
	return wait
}

// attempt acquires the domain's next lease, unless it has one, and calls the handler: both under one admission, so that no record
// is leased while it waits for a slot.
func (d *Dispatcher) attempt(dom *domain) (wait time.Duration) {
	for rejected := 1; ; rejected++ {
		ran := false
		rejection := d.cfg.Concurrency(d.runCtx, func() error {
			ran = true
			if d.runCtx.Err() != nil { // the drain has begun: no new attempt
				return nil //nolint:nilerr // the handler has not failed
			}
			return d.try(dom, &wait)
		})
		if ran || d.runCtx.Err() != nil {
			return wait
		}
		if rejected == 1 {
			d.observe(Event{Kind: Rejected, Domain: dom.name, Err: rejection})
		}
		sleep(d.runCtx, step(time.Millisecond, 50*time.Millisecond, rejected))
	}
}

// try runs inside attempt's admission. Its error is the handler's.
func (d *Dispatcher) try(dom *domain, wait *time.Duration) error {
	switch {
	case dom.stage == fresh:
		*wait = d.acquire(dom)
		if dom.suspect || dom.released { // taken over: it has a pause of its own
			return nil
		}
	case dom.released:
		*wait = d.reclaimReleased(dom)
	}
	if dom.stage != leased || *wait > 0 { // its record is not fetched, or the ledger rejected the call
		return nil
	}
	d.setCurrent(dom)
	if dom.suspect && !dom.counted {
		if *wait = d.countAttempt(dom); !dom.counted {
			return nil
		}
	}
	dom.err = d.handle(dom)
	dom.stage, dom.suspect = ended, false
	return dom.err
}

// reclaimReleased reclaims a lease that this dispatcher released for a pause. Another token in the ledger does not show which
// process owns the partition: any process may take a released lease, and a reply may have been lost. The lease is looked up as
// for a domain without one; a process that took it is left alone for Grace, also if it releases the lease: it may be the new
// owner.
func (d *Dispatcher) reclaimReleased(dom *domain) (wait time.Duration) {
	l, err := d.partition.Ledger.Reclaim(d.ledgerCtx, dom.name, dom.lease.Token)
	switch {
	case isFence(err):
		d.mu.Lock()
		dom.recordState = recordState{maybeApplied: dom.maybeApplied, takenByOther: true}
		d.mu.Unlock()
		return 0
	case err != nil:
		dom.maybeApplied = true
		return d.backOff(dom, err)
	}
	dom.released, dom.maybeApplied, dom.errorsInRow = false, false, 0
	d.setLease(dom, l)
	return 0
}

// countAttempt counts a suspect's attempt before it begins. If the attempt kills the process, the ledger shows it, and the other
// running records are not charged. A suspect without an attempt left is given up.
func (d *Dispatcher) countAttempt(dom *domain) (wait time.Duration) {
	f, err := d.fail(d.ledgerCtx, dom.lease, dom.maybeApplied)
	switch {
	case isFence(err):
		return d.loseLease(dom, err)
	case err != nil:
		dom.maybeApplied = true
		return d.backOff(dom, err)
	}
	dom.maybeApplied, dom.errorsInRow = false, 0
	if f.Status != lease.RetryScheduled {
		dom.err = ErrDied
		d.giveUp(dom, f, Event{RetryCount: f.RetryCount, Err: dom.err})
		return 0
	}
	dom.counted = true
	dom.lease.RetryCount = f.RetryCount
	d.setLease(dom, dom.lease)
	return 0
}

// giveUp marks the record as given up; its dead letter comes next.
func (d *Dispatcher) giveUp(dom *domain, f lease.Failure, e Event) {
	d.mu.Lock()
	dom.stage, dom.suspect, dom.heldToken = givenUp, false, 0
	dom.next, dom.hasNext = f.Next, f.Status == lease.GiveUpNextHint
	d.count.gaveUp++
	switch {
	case errors.Is(dom.err, ErrPermanent):
		d.count.permanent++
	case errors.Is(dom.err, ErrDied):
		d.count.died++
	}
	d.mu.Unlock()
	e.Kind = GaveUp
	d.observeLease(dom.lease, e)
}

// acquire asks for the lease on the domain's next offset, which is the ledger's if that has one. Records that are done already
// are skipped.
func (d *Dispatcher) acquire(dom *domain) (wait time.Duration) {
	for {
		d.mu.Lock()
		var first item
		inLedger, waiting := dom.inLedger, len(dom.queue) > 0
		if waiting {
			first = dom.queue[0]
		}
		d.mu.Unlock()
		var a lease.Acquisition
		var err error
		switch {
		case inLedger:
			a, err = d.partition.Ledger.AcquireNext(d.ledgerCtx, dom.name)
		case waiting && !first.dead:
			a, err = d.partition.Ledger.TryAcquire(d.ledgerCtx, dom.name, first.Offset)
		default:
			return 0
		}
		if err != nil {
			return d.acquireFailed(dom, err)
		}
		switch a.Status {
		case lease.Acquired:
			d.setLease(dom, a.Lease)
		case lease.Busy, lease.Enqueued, lease.AlreadyAcquired:
			return d.awaitHolder(dom, nil)
		case lease.NothingToDo:
			d.mu.Lock()
			dom.inLedger = false
			d.mu.Unlock()
		case lease.AlreadyProcessed, lease.AlreadyFailed:
			d.skipKnown(dom, first.Offset, a.Status)
		}
		dom.maybeApplied, dom.takenByOther, dom.errorsInRow, dom.foreign = false, false, 0, 0
		if dom.stage != fresh || d.runCtx.Err() != nil {
			return 0
		}
	}
}

// acquireFailed deals with an error of acquire.
func (d *Dispatcher) acquireFailed(dom *domain, err error) (wait time.Duration) {
	var disordered *lease.BacklogOrderingError
	switch {
	case errors.As(err, &disordered): // the ledger has earlier records of the domain
		d.mu.Lock()
		dom.inLedger, dom.ledgerOffset = true, disordered.Expected
		d.mu.Unlock()
		return 0
	case errors.Is(err, lease.ErrInvalid): // no ledger will ever accept the record
		d.mu.Lock()
		dom.queue[0].dead, dom.queue[0].cause = true, err
		d.mu.Unlock()
		return 0
	case errors.Is(err, lease.ErrBacklogFull): // behind a lease of another process; or the ledger's entry of the domain is full
		return d.awaitHolder(dom, err)
	}
	dom.maybeApplied = true
	return d.backOff(dom, err)
}

// skipKnown removes the queue's first record, which was done before a restart, or marks it dead if it was given up.
func (d *Dispatcher) skipKnown(dom *domain, offset int64, status lease.Status) {
	if status == lease.AlreadyFailed {
		d.mu.Lock()
		dom.queue[0].dead = true
		d.mu.Unlock()
		return
	}
	d.mu.Lock()
	d.count.skipped++
	d.removeLocked(dom, offset)
	d.mu.Unlock()
	d.observe(Event{Kind: Skipped, Domain: dom.name, Offset: offset})
}

// setLease makes l the lease that dom works under. The stage is leased if the record has been read, or is lost.
func (d *Dispatcher) setLease(dom *domain, l lease.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dom.lease, dom.stage, dom.heldToken = l, missing, l.Token
	dom.inLedger, dom.ledgerOffset = true, l.Offset
	if dom.find(l.Offset) >= 0 || d.recordLostLocked(dom, l.Offset) {
		dom.stage = leased
	}
}

// awaitHolder deals with a lease that another call has taken. If the reply of an earlier call was lost, the lease is this
// dispatcher's own. Otherwise it was taken by a process that has not yet noticed its loss of the partition, which gets Grace to
// finish. The lease is reclaimed only if the source confirms, after the lease was read, that this process owns the partition.
// Without any lease, cause is the error to back off from.
func (d *Dispatcher) awaitHolder(dom *domain, cause error) (wait time.Duration) {
	v, err := d.partition.Ledger.Inspect(d.ledgerCtx, dom.name)
	if err != nil {
		return d.backOff(dom, err)
	}
	if v.Lease == nil {
		if cause != nil {
			return d.backOff(dom, cause)
		}
		return 0
	}
	if free := v.Lease.Released && !dom.takenByOther; !free && !dom.maybeApplied {
		if dom.foreign != v.Lease.Token {
			dom.foreign, dom.foreignSince = v.Lease.Token, time.Now()
			dom.errorsInRow = 0
			d.observeLease(*v.Lease, Event{Kind: Foreign})
		}
		if time.Since(dom.foreignSince) < d.cfg.Grace {
			dom.errorsInRow++
			return min(d.cfg.errorPause(dom.errorsInRow), time.Until(dom.foreignSince.Add(d.cfg.Grace)))
		}
	}
	if wait := d.confirmOwnership(dom); wait > 0 {
		return wait
	}
	if dom.maybeApplied {
		l, err := d.partition.Ledger.Reclaim(d.ledgerCtx, dom.name, v.Lease.Token)
		if err != nil {
			return d.backOff(dom, err)
		}
		d.setLease(dom, l)
		dom.maybeApplied, dom.errorsInRow = false, 0
		return 0
	}
	t, err := d.takeOverLease(d.ledgerCtx, *v.Lease)
	if err != nil {
		return d.backOff(dom, err)
	}
	d.mu.Lock()
	dom.recordState, dom.inLedger, dom.ledgerOffset = t, true, t.lease.Offset
	if dom.find(dom.ledgerOffset) >= 0 || d.recordLostLocked(dom, dom.ledgerOffset) {
		dom.stage = leased
	}
	d.mu.Unlock()
	return time.Until(dom.due)
}

// review looks up the outcome of a record below the ledger's position in the domain.
func (d *Dispatcher) review(dom *domain) (wait time.Duration, below bool) {
	d.mu.Lock()
	var first item
	if below = dom.belowLedger(); below {
		first = dom.queue[0]
	}
	d.mu.Unlock()
	if !below {
		return 0, false
	}
	status, err := d.partition.Ledger.Offer(d.ledgerCtx, dom.name, first.Offset)
	switch {
	case err != nil:
		return d.backOff(dom, err), true
	case status == lease.AlreadyProcessed, status == lease.AlreadyFailed:
		d.skipKnown(dom, first.Offset, status)
	default:
		d.mu.Lock()
		dom.queue[0].inBacklog = true
		d.mu.Unlock()
	}
	dom.errorsInRow = 0
	return 0, true
}

// reportOutcome writes the handler's outcome to the ledger.
func (d *Dispatcher) reportOutcome(dom *domain) (wait time.Duration) {
	l := dom.lease
	if dom.err == nil {
		next, more, err := d.succeed(l)
		switch {
		case err == nil:
			d.recordSuccess(dom, next, more)
			return 0
		case isFence(err):
			return d.loseLease(dom, err)
		}
		return d.backOff(dom, err)
	}
	if d.handlerCtx.Err() != nil {
		// The drain ended the handler's context, which is no failure. The lease is released when the drain ends.
		dom.stage, dom.counted = leased, false
		return 0
	}
	if postponed := (*later)(nil); errors.As(dom.err, &postponed) {
		wait := min(postponed.wait, maxPause)
		if wait <= 0 {
			wait = d.cfg.Backoff
		}
		dom.counted = false
		d.tally(&d.count.postponed)
		return d.retryLater(dom, Event{Kind: Postponed, RetryCount: l.RetryCount, Wait: wait, Took: time.Since(dom.began)})
	}
	f, err := lease.Failure{Status: lease.RetryScheduled, RetryCount: l.RetryCount}, error(nil)
	switch {
	case errors.Is(dom.err, ErrPermanent):
		f, err = d.failure(d.ledgerCtx, l, d.partition.Ledger.GiveUp)
	case !dom.counted:
		f, err = d.fail(d.ledgerCtx, l, dom.maybeApplied)
	}
	switch {
	case isProcessed(err):
		// The handler ended the lease in its own transaction, and that was committed, whatever error the handler received.
		next, more, err := d.head(d.ledgerCtx, dom.name)
		if err != nil {
			return d.backOff(dom, err)
		}
		d.recordSuccess(dom, next, more)
		return 0
	case isFence(err):
		return d.loseLease(dom, err)
	case err != nil:
		dom.maybeApplied = true
		return d.backOff(dom, err)
	}
	dom.maybeApplied, dom.counted, dom.errorsInRow = false, false, 0
	failed := Event{RetryCount: f.RetryCount, Err: dom.err, Took: time.Since(dom.began)}
	if f.Status != lease.RetryScheduled {
		d.giveUp(dom, f, failed)
		return d.sendDeadLetter(dom)
	}
	dom.lease.RetryCount = f.RetryCount
	failed.Kind, failed.Wait = Retrying, d.cfg.pause(f.RetryCount)
	d.tally(&d.count.retried)
	return d.retryLater(dom, failed)
}

// recordSuccess removes the record that dom has in work, which is done.
func (d *Dispatcher) recordSuccess(dom *domain, next int64, more bool) {
	l, took := dom.lease, time.Since(dom.began)
	d.finish(dom, l.Offset, more, next, &d.count.succeeded)
	d.observeLease(l, Event{Kind: Succeeded, RetryCount: l.RetryCount, Took: took})
}

// retryLater pauses dom for e.Wait, and releases its lease until then.
func (d *Dispatcher) retryLater(dom *domain, e Event) time.Duration {
	dom.due = time.Now().Add(e.Wait)
	d.releaseLease(d.ledgerCtx, dom.lease)
	d.mu.Lock()
	dom.stage, dom.released, dom.heldToken = leased, true, 0
	d.mu.Unlock()
	d.observeLease(dom.lease, e)
	return time.Until(dom.due)
}

// sendDeadLetter delivers the record that was given up. The record is done when DeadLetter has accepted it.
func (d *Dispatcher) sendDeadLetter(dom *domain) (wait time.Duration) {
	if wait = d.deliver(dom, DeadLetter{Record: dom.current.Record, Lease: dom.lease, Err: dom.err}); wait == 0 {
		d.finish(dom, dom.current.Offset, dom.hasNext, dom.next, &d.count.deadLettered)
	}
	return wait
}

// resendDeadLetter delivers the queue's first record if it was given up before a restart. It comes before all later records, also
// before one whose lease was taken over.
func (d *Dispatcher) resendDeadLetter(dom *domain) (wait time.Duration, dead bool) {
	d.mu.Lock()
	var first item
	if dead = dom.dead(); dead {
		first = dom.queue[0]
	}
	d.mu.Unlock()
	if !dead {
		return 0, false
	}
	if wait = d.deliver(dom, DeadLetter{Record: first.Record, Err: first.cause}); wait == 0 {
		d.mu.Lock()
		d.count.deadLettered++
		d.removeLocked(dom, first.Offset)
		d.mu.Unlock()
		dom.errorsInRow = 0
	}
	return wait, true
}

// deliver calls DeadLetter. It returns 0 if the letter was accepted, otherwise the pause before the next call.
func (d *Dispatcher) deliver(dom *domain, letter DeadLetter) (wait time.Duration) {
	letter.Partition = d.partition.Name
	err := d.callWithTimeout(dom, func(ctx context.Context) error { return d.cfg.DeadLetter(ctx, letter) })
	e := Event{Kind: DeadLettered, Domain: dom.name, Offset: letter.Record.Offset, Token: letter.Lease.Token, Err: letter.Err}
	if err != nil {
		dom.errorsInRow++
		wait = max(d.cfg.errorPause(dom.errorsInRow), 1)
		e.Kind, e.Err, e.Wait = DeadLetterFailed, err, wait
		d.tally(&d.count.deadLetterFailed)
	}
	d.observe(e)
	return wait
}

// finish removes a record that is done, and counts it. If the ledger has more of the domain, next is its offset.
func (d *Dispatcher) finish(dom *domain, offset int64, more bool, next int64, counter *uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*counter++
	dom.inLedger, dom.ledgerOffset, dom.heldToken = more, next, 0
	dom.recordState = recordState{}
	d.removeLocked(dom, offset)
}

// removeLocked removes a record that is done from the queue.
func (d *Dispatcher) removeLocked(dom *domain, offset int64) {
	if dom.drop(offset) {
		d.buffered--
		dom.owner.buffered--
		d.records.release(1)
	}
	d.signalFetchLocked(dom)
}

// loseLease is called when another process has taken the lease. The domain's records stay queued and hold the floor until the
// source confirms which process owns the partition.
func (d *Dispatcher) loseLease(dom *domain, err error) (wait time.Duration) {
	l := dom.lease
	d.mu.Lock()
	dom.recordState, dom.heldToken = recordState{stage: fenced, lease: l}, 0
	d.count.lost++
	d.mu.Unlock()
	d.observeLease(l, Event{Kind: Fenced, RetryCount: l.RetryCount, Err: err})
	return d.awaitOwnership(dom)
}

// awaitOwnership asks the source which process owns the partition. If it is this one, a former owner has taken the lease, and the
// domain begins anew; if not, the Run ends.
func (d *Dispatcher) awaitOwnership(dom *domain) (wait time.Duration) {
	if wait := d.confirmOwnership(dom); wait > 0 {
		return wait
	}
	d.mu.Lock()
	dom.recordState = recordState{}
	d.mu.Unlock()
	return 0
}

// confirmOwnership asks the source whether this process owns the partition. It returns 0 if so, otherwise the pause before it
// asks again.
func (d *Dispatcher) confirmOwnership(dom *domain) (wait time.Duration) {
	if d.checkOwnership(d.handlerCtx) == nil {
		return 0
	}
	dom.errorsInRow++
	return max(d.cfg.errorPause(dom.errorsInRow), 1)
}

// backOff reports a failed call of the ledger and returns the pause after it.
func (d *Dispatcher) backOff(dom *domain, err error) (wait time.Duration) {
	_ = d.endIfLost(err) // the pause is cut short
	dom.errorsInRow++
	wait = d.cfg.errorPause(dom.errorsInRow)
	d.observe(Event{Kind: LedgerError, Domain: dom.name, Offset: dom.lease.Offset, Token: dom.lease.Token, Err: err, Wait: wait})
	return wait
}

// isProcessed reports whether a Succeed with this token ended the lease: the handler's own, or one whose reply was lost.
func isProcessed(err error) bool {
	done := (*lease.LeaseNotFoundError)(nil)
	return errors.As(err, &done) && done.Status == lease.AlreadyProcessed
}

// isFence reports whether the token's lease was taken or completed by another process.
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

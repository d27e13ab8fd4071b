// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file takes the steps of a domain that has a slot: their calls are made without the lock, and the machine gets the answers.

import (
	"context"
	"errors"
	"time"
)

// work advances one domain after the other, as long as the released slot is granted to this partition again.
func (d *Dispatcher) work(dom *domain) {
	for dom != nil {
		d.mu.Lock()
		slot, began := dom.owner.waiter, time.Now()
		s := dom.next(d.momentLocked(dom, began))
		d.mu.Unlock()
		var own, all time.Duration
		if s.attempt {
			own, all = d.pace(dom)
		}
		rejected := own > 0 || all > 0
		if !rejected {
			slot.rateAnswered(false, 0)
			d.advance(dom, s)
		}
		now := time.Now()
		used := now.Sub(began)
		d.mu.Lock()
		dom.place = idle
		d.endTrialLocked(dom)
		if own > 0 {
			dom.until = now.Add(own)
		}
		if d.closed {
			d.clearReadyLocked()
		} else {
			d.placeLocked(dom, now)
		}
		if own > 0 && dom.place == pausing {
			dom.place = paced
		}
		if rejected {
			slot.rateAnswered(true, all)
			used = 0
		}
		if dom = d.domainForSlotLocked(slot.release(used)); dom == nil {
			d.active--
			d.endDrainLocked()
		}
		d.mu.Unlock()
	}
}

// advance takes dom's steps, from s on, until the slot is to be given back.
func (d *Dispatcher) advance(dom *domain, s step) {
	if s.attempt {
		s = d.admit(dom, s)
	}
	for s.call != nothing && !s.attempt {
		s = d.learn(dom, s, d.call(d.ledgerCtx, dom, s))
	}
}

// admit takes the steps of an attempt, from the lease to the handler's return, under one admission, so that no record is leased
// while it waits for a slot. s is the first one. It returns the step after the last, or the
// first one if the drain has begun before it was admitted.
func (d *Dispatcher) admit(dom *domain, s step) step {
	for rejected := 1; ; rejected++ {
		ran := false
		rejection := d.cfg.Concurrency(d.runCtx, func() (err error) {
			ran = true
			if d.runCtx.Err() != nil { // the drain has begun: no new attempt
				s = step{}
			}
			for s.attempt {
				a := d.call(d.ledgerCtx, dom, s)
				if s.call == handle { // the last step of an attempt
					err = a.err
				}
				s = d.learn(dom, s, a)
			}
			return err
		})
		if ran || d.runCtx.Err() != nil {
			return s
		}
		if rejected == 1 {
			d.observe(Event{Kind: Rejected, Domain: dom.name, Err: rejection})
		}
		sleep(d.runCtx, doubled(time.Millisecond, 50*time.Millisecond, rejected))
	}
}

// learn tells dom's machine what s answered. It returns the next step, if that is to be taken before the slot is given back.
func (d *Dispatcher) learn(dom *domain, s step, a answer) (next step) {
	d.mu.Lock()
	now, queued, room := d.momentLocked(dom, time.Now()), len(dom.queue), dom.room
	e, on := dom.learn(now, s, a)
	if on {
		next = dom.next(now)
	}
	if e.Kind != "" {
		d.countLocked(e)
	}
	if e.Kind == LedgerError {
		_ = d.endIfLost(e.Err) // which is observed in any case
	}
	if done := queued - len(dom.queue); done > 0 {
		room -= dom.room
		d.freeLocked(dom, done, room)
		d.signalFetchLocked(dom, room)
	}
	d.mu.Unlock()
	if e.Kind != "" && (s.call != release || !errors.Is(a.err, context.Canceled)) {
		e.Domain = dom.name
		d.observe(e)
	}
	return next
}

// freeLocked gives back the room of n records that have left dom's queue.
func (d *Dispatcher) freeLocked(dom *domain, n, room int) {
	d.buffered -= n
	dom.owner.room -= room
	d.records.release(room)
}

// momentLocked returns what dom's machine cannot know.
func (d *Dispatcher) momentLocked(dom *domain, now time.Time) moment {
	read := mark{true, d.position}.lower(dom.deferred).lower(dom.owner.deferred)
	return moment{&d.cfg, now, random(), read.offset, d.runCtx.Err() != nil, d.handlerCtx.Err() != nil}
}

// placeLocked puts an idle domain where its next step has it wait, and forgets it if it is empty.
func (d *Dispatcher) placeLocked(dom *domain, now time.Time) {
	if dom.place != idle {
		return
	}
	switch s := dom.next(d.momentLocked(dom, now)); {
	case s.call != nothing:
		dom.owner.push(dom, s.attempt)
		d.requestSlotLocked(dom.owner)
	case s.wait > 0:
		dom.place, dom.long = pausing, s.wait >= rest
		d.restLocked(dom)
		dom.timer = time.AfterFunc(s.wait, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if (dom.place == pausing || dom.place == paced) && !d.closed {
				dom.place = idle
				d.placeLocked(dom, time.Now())
			}
		})
	case dom.empty():
		d.forgetLocked(dom)
	default:
		d.watchLocked(dom)
	}
}

func sleep(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

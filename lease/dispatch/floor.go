// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file is the commit floor: the offset below which everything is done, committed to the source first and then to the ledger.

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/stopbank/stopbank/lease"
)

// floors are the floors committed so far, and the end of the log. Guarded by Dispatcher.mu; written by the commit loop and, after
// it, by the drain.
type floors struct {
	committed int64 // in the source
	compacted int64 // in the ledger
	end       mark  // of the source, if it knows it
	short     bool  // end was below what had been read
}

// floorLocked returns the lowest offset that may not be done.
func (d *Dispatcher) floorLocked() int64 {
	floor := mark{true, d.position}
	for _, dom := range d.domains {
		floor = floor.lower(dom.low())
	}
	for _, o := range d.deferredOwners {
		floor = floor.lower(o.deferred)
	}
	return floor.offset
}

// commitLoop commits the floor every CommitEvery, until the drain begins. A commit that is running then may end, as handlers
// may: a server could carry out one that is cancelled after the drain's own. Only one for a lost partition is cancelled at
// once.
func (d *Dispatcher) commitLoop() {
	ctx, cancel := context.WithCancel(d.handlerCtx)
	defer cancel()
	stop := context.AfterFunc(d.runCtx, func() {
		if lostIn(context.Cause(d.runCtx)) != nil {
			cancel()
		}
	})
	defer stop()
	tick := time.NewTicker(d.cfg.CommitEvery)
	defer tick.Stop()
	for {
		select {
		case <-d.runCtx.Done():
			return
		case <-tick.C:
		}
		if d.runCtx.Err() != nil {
			return
		}
		d.askLog(d.runCtx)
		_ = d.commit(ctx) // the observer got the error; the next tick tries again
	}
}

// commit commits the floor to the source, and then compacts the ledger below it.
func (d *Dispatcher) commit(ctx context.Context) error {
	d.mu.Lock()
	floor, done := d.floorLocked(), d.floors
	d.mu.Unlock()
	if floor > done.committed {
		if err := d.commitFloor(ctx, floor); err != nil {
			return err
		}
		done.committed = floor
		d.observe(Event{Kind: Committed, Offset: floor})
	}
	if done.committed > done.compacted {
		// ErrFloor: a later owner has compacted the ledger further.
		if err := d.partition.Ledger.Compact(ctx, done.committed); err != nil && !errors.Is(err, lease.ErrFloor) {
			d.observeUnless(ctx, Event{Kind: LedgerError, Offset: done.committed, Err: err})
			return err
		}
		d.mu.Lock()
		d.floors.compacted = done.committed
		d.mu.Unlock()
	}
	return nil
}

// checkOwnership asks the source whether this process still owns the partition, by committing the floor that it has already. It
// is called after a lease was read in the ledger and before it is reclaimed, so that a former owner never fences out a later
// one.
func (d *Dispatcher) checkOwnership(ctx context.Context) error {
	return d.commitFloor(ctx, math.MinInt64)
}

// commitFloor commits a floor to the source, one at a time.
func (d *Dispatcher) commitFloor(ctx context.Context, floor int64) error {
	select {
	case d.committing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-d.committing }()
	d.mu.Lock()
	floor = max(floor, d.floors.committed)
	err := d.rewound
	d.mu.Unlock()
	if err != nil {
		return err
	}
	if err := d.partition.Source.Commit(ctx, floor); err != nil {
		d.noteRewound(err)
		d.observeUnless(ctx, Event{Kind: CommitFailed, Offset: floor, Err: err})
		_ = d.endIfLost(err) // err is returned in any case
		return err
	}
	d.mu.Lock()
	d.floors.committed = floor
	d.mu.Unlock()
	return nil
}

// observeUnless observes e unless ctx has ended.
func (d *Dispatcher) observeUnless(ctx context.Context, e Event) {
	if ctx.Err() == nil {
		d.observe(e)
	}
}

package dispatch

// This file is the commit floor: the offset below which everything is done, committed to the source first and then to the ledger.

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/stopbank/stopbank/lease"
)

// floors are the floors committed so far. Guarded by Dispatcher.mu; written by the commit loop and, after it, by the drain.
type floors struct {
	committed int64 // in the source
	compacted int64 // in the ledger
	end       int64 // of the source
	endKnown  bool
}

// floor is the lowest offset that may not be done. The lock is held.
func (d *Dispatcher) floor() int64 {
	floor := d.high
	for _, dom := range d.domains {
		if low, ok := dom.low(); ok {
			floor = min(floor, low)
		}
	}
	for _, o := range d.lagging {
		floor = min(floor, o.mark)
	}
	return floor
}

// commits has the floor committed from time to time, until the drain begins. A commit that is running then may end, as handlers may: the
// source's server could carry out one that is cancelled after the drain's own. Only one for a lost partition is cancelled at once.
func (d *Dispatcher) commits() {
	ctx, cancel := context.WithCancel(d.handling)
	defer cancel()
	stop := context.AfterFunc(d.soft, func() {
		if lostIn(context.Cause(d.soft)) != nil {
			cancel()
		}
	})
	defer stop()
	tick := time.NewTicker(d.cfg.CommitEvery)
	defer tick.Stop()
	for {
		select {
		case <-d.soft.Done():
			return
		case <-tick.C:
		}
		if d.soft.Err() != nil {
			return
		}
		_ = d.commit(ctx) // the observer got the error; the next tick tries again
		if source, ok := d.cfg.Source.(Ended); ok {
			if end, err := source.End(d.soft); err == nil {
				d.mu.Lock()
				d.where.end, d.where.endKnown = end, true
				d.mu.Unlock()
			}
		}
	}
}

// commit commits the floor to the source, and then compacts the ledger below it.
func (d *Dispatcher) commit(ctx context.Context) error {
	d.mu.Lock()
	floor, said := d.floor(), d.where
	d.mu.Unlock()
	if floor > said.committed {
		if err := d.commitFloor(ctx, floor); err != nil {
			return err
		}
		said.committed = floor
		d.observe(Event{Kind: Committed, Offset: floor})
	}
	if said.committed > said.compacted {
		// a later owner has compacted the ledger further
		if err := d.cfg.Ledger.Compact(ctx, said.committed); err != nil && !errors.Is(err, lease.ErrFloor) {
			d.observeUnless(ctx, Event{Kind: LedgerError, Offset: said.committed, Err: err})
			return err
		}
		d.mu.Lock()
		d.where.compacted = said.committed
		d.mu.Unlock()
	}
	return nil
}

// ask asks the source, by the floor that it has already, whether the partition is still ours. Asked after a lease was read in the ledger and
// before it is reclaimed, so that a former owner never fences out a later one.
func (d *Dispatcher) ask(ctx context.Context) error { return d.commitFloor(ctx, math.MinInt64) }

// commitFloor commits a floor to the source, one at a time.
func (d *Dispatcher) commitFloor(ctx context.Context, floor int64) error {
	select {
	case d.committing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-d.committing }()
	d.mu.Lock()
	floor = max(floor, d.where.committed)
	d.mu.Unlock()
	if err := d.cfg.Source.Commit(ctx, floor); err != nil {
		d.observeUnless(ctx, Event{Kind: CommitFailed, Offset: floor, Err: err})
		_ = d.endIfLost(err) // err is returned in any case
		return err
	}
	d.mu.Lock()
	d.where.committed = floor
	d.mu.Unlock()
	return nil
}

// observeUnless observes e unless ctx has ended.
func (d *Dispatcher) observeUnless(ctx context.Context, e Event) {
	if ctx.Err() == nil {
		d.observe(e)
	}
}

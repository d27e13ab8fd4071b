package leasekafka

// This file has the ledger in memory outlive its owner: it is made of what was committed, and committed by itself where the floor stands.

import (
	"context"
	"math"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// remember makes the ledger of a partition from what was committed last, and commits its epoch: tokens of an owner who dies right away are below those
// of the next. Nobody else uses p meanwhile but those who look at what was fetched.
func (p *partition) remember(floor int64, metadata string) error {
	m, wrong := readMemo(metadata, floor)
	if wrong != "" {
		return &MetadataError{Topic: p.topic, Partition: p.partition, Offset: floor, Reason: wrong}
	}
	l := newLedger(p.m.cfg.Memory, floor, m, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.lost
	})
	l.commitNow = p.commitNow
	p.kept.Store(l)
	if err := p.Commit(p.ctx, floor); err != nil {
		return err
	}
	p.ledger = l
	return nil
}

// keep begins to commit what changes above the floor, every CommitEvery if nobody else has meanwhile, and at once when a failure waits for it. What it
// returns ends that, with a last commit: who drains has given leases back since the dispatcher's last one.
func (p *partition) keep() (end func()) {
	if p.m.cfg.Ledger != nil {
		return func() {}
	}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(p.m.cfg.CommitEvery)
		defer tick.Stop()
		var saved uint64
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				if l := p.kept.Load(); l == nil || !l.overdue(&saved) {
					continue
				}
			case <-p.commitNow:
			}
			if p.commitState(p.m.alive) != nil {
				p.kept.Load().keeps(0) // who waits for it asks again
				select {
				case <-over:
				case <-p.m.after(retryPause):
				}
			}
		}
	}()
	return func() {
		close(over)
		<-ended
		if l := p.kept.Load(); l != nil {
			ctx, cancel := context.WithTimeout(p.m.alive, p.m.cfg.DrainTimeout/2)
			defer cancel()
			_ = p.commitState(ctx) // what it would have said is done again by the next owner
		}
	}
}

// commitState commits what has changed above the floor.
func (p *partition) commitState(ctx context.Context) error { return p.Commit(ctx, math.MinInt64) }

// room is how many records from an offset on may be handed out. While a commit has hardly room for more, those are none above all that is
// known: what lies below fills the gaps. The lock is held.
func (p *partition) room(from int64, limit int) int {
	l := p.kept.Load()
	if l == nil {
		return limit
	}
	top, full := l.full(p.floor)
	if full && !p.full {
		floor := p.floor
		p.m.post(func() {
			p.m.log("what is done above the floor has hardly room in a commit, reading on when it has", "partition", p.name(), "floor", floor)
		})
	}
	if p.full = full; !full {
		return limit
	}
	return min(limit, max(0, p.window.at(max(p.window.read, top))-p.window.at(from)))
}

// gaps notes that the log has no more than records from an offset up to the last of them. The lock is held.
func (p *partition) gaps(from int64, records []dispatch.Record) {
	l := p.kept.Load()
	if l == nil {
		return
	}
	for _, r := range records {
		if r.Offset > from {
			l.gap(from, r.Offset-1)
		}
		from = r.Offset + 1
	}
}

// SPDX-License-Identifier: Apache-2.0

package leasekafka

// A ledger in memory outlives its owner: changes above the floor are committed as metadata even while the floor does not rise,
// and the next owner restores the ledger from it.

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// restoreLedger restores a partition's ledger from the last commit, and commits a new epoch, so that the next owner's tokens are
// greater even if this owner dies at once.
func (p *partition) restoreLedger(floor int64, metadata string) error {
	m, wrong := readMemo(metadata, floor)
	if wrong != "" {
		return p.error(fmt.Errorf("the metadata of offset %d is %s", floor, wrong))
	}
	if p.topicID != (topicID{}) && m.topic != (topicID{}) && m.topic != p.topicID {
		return dispatch.Rewound(p.name(), fmt.Errorf("leasekafka: the group's offset is of the topic of ID %s, and this one has %s: it was "+
			"made anew, or is a mirror. Stop all members, and let leasectl adopt it if it has the same records at the same offsets, or "+
			"else reset the group's offsets", m.topic.text(), p.topicID.text()))
	}
	m.topic = p.topicID
	l := newLedger(floor, m, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.lost
	})
	l.commitNow = p.commitNow
	p.memory.Store(l)
	if err := p.Commit(p.ctx, floor); err != nil {
		return err
	}
	p.ledger = lease.FromEngine(l, p.m.cfg.Ledger)
	return nil
}

// commitChanges starts to commit changes above the floor, every CommitEvery unless the dispatcher has committed meanwhile, and
// immediately when a failure waits for it. The returned function stops that with a last commit, for the leases that the drain has
// released.
func (p *partition) commitChanges() (end func()) {
	if p.m.cfg.OpenLedger != nil {
		return func() {}
	}
	ctx, over := context.WithCancel(p.m.alive)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(p.m.cfg.CommitEvery)
		defer tick.Stop()
		var saved uint64
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if l := p.memory.Load(); l == nil || !l.overdue(&saved) {
					continue
				}
			case <-p.commitNow:
			}
			if p.commitState(ctx) != nil {
				p.memory.Load().markSaved(0) // the waiting call asks again
				select {
				case <-ctx.Done():
				case <-p.m.after(retryPause):
				}
			}
		}
	}()
	return func() {
		over()
		<-ended
		if l := p.memory.Load(); l != nil {
			ctx, cancel := context.WithTimeout(p.m.alive, p.m.cfg.DrainTimeout/2)
			defer cancel()
			_ = p.commitState(ctx) // without it, the next owner repeats this work
		}
	}
}

// commitState commits what has changed above the floor.
func (p *partition) commitState(ctx context.Context) error { return p.Commit(ctx, math.MinInt64) }

// fetchLimitLocked returns how many records from an offset on may be handed out, at most limit. While a commit's metadata is
// nearly full, only records below the highest known offset are.
func (p *partition) fetchLimitLocked(from int64, limit int) int {
	l := p.memory.Load()
	if l == nil {
		return limit
	}
	top, full := l.full(p.floor)
	if full && !p.full {
		floor := p.floor
		p.m.post(func() {
			p.m.log("what is done above the floor has hardly room in a commit, reading on when it has",
				"partition", p.name(), "floor", floor)
		})
	}
	if p.full = full; !full {
		return limit
	}
	return min(limit, max(0, p.window.at(max(p.window.read, top))-p.window.at(from)))
}

// recordGapsLocked records in the ledger which offsets are missing in the log between these records.
func (p *partition) recordGapsLocked(from int64, records []dispatch.Record) {
	l := p.memory.Load()
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

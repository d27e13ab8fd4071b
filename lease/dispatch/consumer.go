// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file runs many partitions in one process: a Dispatcher for each, which share slots, room and trials.

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/lease/internal/nilcheck"
)

// Consumer processes the partitions that an Ownership assigns to it. It must come from NewConsumer and must not be
// copied.
type Consumer struct {
	ownership       Ownership
	cfg             Config
	slots           *slots
	records, trials *semaphore
	used            atomic.Bool // Run was called

	mu      sync.Mutex // guards all below; no foreign code runs under it
	held    map[string]*Dispatcher
	undone  []error // ErrDrain of the partitions that ended with the Consumer
	invalid error   // of a Partition that is not valid, which ends the membership
}

// NewConsumer returns a Consumer, and calls none of its parts but DrainTimeout of the Ownership. Every partition gets a
// Dispatcher with cfg. MaxInFlight, MaxBuffered and Rate hold for all partitions together, and owners share the slots of all
// partitions. A free slot goes to the waiting owner with the fewest slots, then to the one that has used the least time of
// them, and of its partitions to the one with the fewest. A partition fetches more while it has fewer records than all could
// still fetch, and may always have one. Error: *lease.InvalidError naming the field.
func NewConsumer(ownership Ownership, cfg Config) (*Consumer, error) {
	if missing := nilcheck.Required(ownership); missing != "" {
		return nil, invalidField("ownership", missing, "an Ownership")
	}
	if bound, ok := ownership.(interface{ DrainTimeout() time.Duration }); ok {
		most := bound.DrainTimeout()
		if cfg.DrainTimeout > most {
			return nil, invalidField("Config.DrainTimeout", cfg.DrainTimeout, "0, or the Ownership's ("+most.String()+") or less")
		}
		cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, most)
	}
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	return &Consumer{
		ownership: ownership, cfg: cfg, held: map[string]*Dispatcher{},
		slots: newSlots(cfg), records: &semaphore{limit: cfg.MaxBuffered, ofRecords: true}, trials: &semaphore{limit: 1},
	}, nil
}

// Run joins the group and processes the assigned partitions until ctx is done or the membership cannot go on, which is
// the error. A partition that is lost or moves to another member is drained as by Dispatcher.Run, a lost one
// without a commit. The error includes the ErrDrain of each partition that ended because ctx was done; an earlier one
// is only an event (Drained). A second Run, a nil ctx, a Consumer that NewConsumer did not make, and an Ownership that
// assigns a partition twice, or one without a Source or a Ledger, are a *lease.InvalidError. Run blocks until all partitions
// have been given back.
func (c *Consumer) Run(ctx context.Context) error {
	switch {
	case ctx == nil:
		return invalidField("ctx", "nil", "a context")
	case c == nil || c.ownership == nil:
		return invalidField("Consumer", "nil or zero", "a consumer made by NewConsumer")
	}
	if c.used.Swap(true) {
		return invalidField("Consumer", "one that has run", "a new one for each Run")
	}
	member, leave := context.WithCancel(ctx)
	defer leave()
	err := c.ownership.Hold(member, func(ctx context.Context, partition Partition) {
		err := c.work(ctx, partition)
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case err == nil, errors.Is(err, ErrLost):
		case !errors.Is(err, ErrDrain):
			c.invalid = cmp.Or(c.invalid, err)
			leave()
		case member.Err() != nil:
			c.undone = append(c.undone, err)
		}
	})
	return errors.Join(append(c.undone, cmp.Or(c.invalid, err))...)
}

// work runs the Dispatcher of one partition.
func (c *Consumer) work(ctx context.Context, p Partition) error {
	if err := p.check(); err != nil {
		return err
	}
	c.mu.Lock()
	if c.held[p.Name] != nil {
		c.mu.Unlock()
		return invalidField("Partition.Name", p.Name, "a partition that this consumer does not hold already")
	}
	d := sharing(p, c.cfg, c.slots, c.records, c.trials)
	c.held[p.Name] = d
	c.mu.Unlock()
	err := d.Run(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, p.Name)
	return err
}

// Stats returns the Stats of the assigned partitions, by name; one that is not taken yet is not Held.
func (c *Consumer) Stats() []Stats {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]Stats, 0, len(c.held))
	for _, d := range c.held {
		all = append(all, d.Stats())
	}
	slices.SortFunc(all, func(a, b Stats) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

package dispatch

// This file runs many partitions in one process: a Dispatcher for each partition held, under shared bounds.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/nilcheck"
)

// Consumer processes the partitions that an Ownership assigns to it. It must come from NewConsumer and must not be
// copied.
type Consumer struct {
	ownership       Ownership
	cfg             Config
	slots           *slots
	records, trials *bound
	used            atomic.Bool // Run was called

	mu     sync.Mutex // guards all below; nothing foreign runs under it
	held   map[string]*Dispatcher
	undone []error // of the partitions that ended with the Consumer
}

// NewConsumer returns a Consumer, without calling any of its parts. Every partition gets a Dispatcher made from cfg, in
// which Name, Ledger and Source must be zero: they are the partition's. MaxInFlight, MaxBuffered and Rate hold for all
// partitions together, and owners share the slots of all partitions. A free slot goes to the waiting owner with the
// fewest slots, and of its partitions to the one with the fewest. A partition fetches more while it has fewer records
// than all could still fetch, and may always have one. Error: *InvalidError naming the field.
func NewConsumer(ownership Ownership, cfg Config) (*Consumer, error) {
	if missing := nilcheck.Required(ownership); missing != "" {
		return nil, invalidField("ownership", missing, "an Ownership")
	}
	for _, own := range []struct {
		field string
		zero  bool
	}{{"Name", cfg.Name == ""}, {"Ledger", cfg.Ledger == nil}, {"Source", cfg.Source == nil}} {
		if !own.zero {
			return nil, invalidField("Config."+own.field, "set", "nothing: each Partition of the Ownership has its own")
		}
	}
	cfg.Ledger, cfg.Source = struct{ lease.Ledger }{}, new(Log) // so that there are some; no Dispatcher sees them
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	return &Consumer{
		ownership: ownership, cfg: cfg, held: map[string]*Dispatcher{},
		slots: newSlots(cfg), records: &bound{most: cfg.MaxBuffered, room: true}, trials: &bound{most: 1},
	}, nil
}

// Run joins the group and processes the assigned partitions until ctx is done or the membership cannot go on, which is
// the error. A lost partition is dropped at once; a partition that moves to another member is drained first, as by
// Dispatcher.Run. The error includes the *DrainError of each partition that ended because ctx was done; an earlier one
// is only an event (Drained). A second Run, a nil ctx, a Consumer that NewConsumer did not make, and an Ownership that
// assigns a partition twice, or one without a Source or a Ledger, are an *InvalidError. Run blocks until all partitions
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
	member, reject := context.WithCancelCause(ctx)
	defer reject(nil)
	err := c.ownership.Hold(member, func(ctx context.Context, partition Partition) {
		if err := c.work(ctx, partition); errors.Is(err, lease.ErrInvalid) {
			reject(err)
		} else if err != nil && member.Err() != nil && !errors.Is(err, ErrLost) {
			c.mu.Lock()
			c.undone = append(c.undone, err)
			c.mu.Unlock()
		}
	})
	if invalid := context.Cause(member); errors.Is(invalid, lease.ErrInvalid) {
		err = invalid
	}
	return errors.Join(append(c.undone, err)...)
}

// work runs the Dispatcher of one partition.
func (c *Consumer) work(ctx context.Context, p Partition) error {
	cfg := c.cfg
	cfg.Name, cfg.Ledger, cfg.Source = p.Name, p.Ledger, p.Source
	if p.Open == nil {
		if err := p.complete(); err != nil {
			return err
		}
	} else if p.Source != nil || p.Ledger != nil {
		return invalidField("Partition.Open", fmt.Sprintf("set, of %q, which has a source or a ledger", p.Name), "nil beside those")
	}
	c.mu.Lock()
	if c.held[p.Name] != nil {
		c.mu.Unlock()
		return invalidField("Partition.Name", p.Name, "a partition that this consumer does not hold already")
	}
	d := sharing(cfg, c.slots, c.records, c.trials)
	d.open = p.Open
	c.held[p.Name] = d
	c.mu.Unlock()
	err := d.Run(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, p.Name)
	return err
}

// complete reports what the partition lacks.
func (p Partition) complete() error {
	if missing := nilcheck.Required(p.Ledger); missing != "" {
		return invalidField("Partition.Ledger", fmt.Sprintf("%s, of %q", missing, p.Name), "a ledger")
	}
	if missing := nilcheck.Required(p.Source); missing != "" {
		return invalidField("Partition.Source", fmt.Sprintf("%s, of %q", missing, p.Name), "a source")
	}
	return nil
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

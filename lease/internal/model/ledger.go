// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"fmt"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// Ledger is all domains of a ledger: what is the business of no single one are floors, tokens, and lists.
type Ledger struct {
	cfg     lease.Config
	domains map[string]*Domain // "": one never seen
	owners  map[lease.Token]string
}

// NewLedger is an empty ledger.
func NewLedger(cfg lease.Config) *Ledger {
	return &Ledger{cfg: cfg, domains: map[string]*Domain{"": New()}, owners: map[lease.Token]string{}}
}

// Domain is what the contract says of a domain.
func (m *Ledger) Domain(name string) *Domain {
	d := m.domains[name]
	if d == nil {
		d = m.domains[""].Clone()
		m.domains[name] = d
	}
	return d
}

// Accept is that of the domains which the call concerns.
func (m *Ledger) Accept(c Call, got Reply) error {
	if c.Op == step.Compact {
		for _, d := range m.domains {
			if err := d.Accept(m.cfg, c, got); err != nil {
				return err
			}
		}
		return nil
	}
	d := m.Domain(c.Domain)
	before := d.Highest
	if err := d.Accept(m.cfg, c, got); err != nil || d.Highest == before {
		return err
	}
	if owner, taken := m.owners[d.Highest]; taken {
		return fmt.Errorf("%v: token %d went to %q before", c, d.Highest, owner)
	}
	m.owners[d.Highest] = c.Domain
	return nil
}

// Look has l tell of every domain, and compares.
func (m *Ledger) Look(ctx context.Context, l lease.Ledger) error {
	held, ready := map[string]lease.Lease{}, map[string]int64{}
	for item, err := range l.Held(ctx) {
		if _, again := held[item.Domain]; again || err != nil {
			return fmt.Errorf("Held: %+v, again %t, %v", item, again, err)
		}
		held[item.Domain] = item
	}
	for head, err := range l.Ready(ctx) {
		if _, again := ready[head.Domain]; again || err != nil {
			return fmt.Errorf("Ready: %+v, again %t, %v", head, again, err)
		}
		ready[head.Domain] = head.Offset
	}
	for name, d := range m.domains {
		if name == "" {
			continue
		}
		c := Call{Domain: name}
		if err := d.Accept(m.cfg, c, c.Do(ctx, l)); err != nil {
			return err
		}
		item, isHeld := held[name]
		head, isReady := ready[name]
		delete(held, name)
		delete(ready, name)
		switch {
		case isHeld != (d.Lease != nil) || isHeld && item != *d.Lease:
			return fmt.Errorf("%q: Held yields %+v (%t), want %+v", name, item, isHeld, d.Lease)
		case isReady != (d.Lease == nil && len(d.Backlog) > 0) || isReady && head != d.Backlog[0]:
			return fmt.Errorf("%q: Ready yields %d (%t), want the head of %v", name, head, isReady, d.Backlog)
		}
	}
	if len(held)+len(ready) > 0 {
		return fmt.Errorf("out of nowhere: Held yields %v, Ready %v", held, ready)
	}
	return nil
}

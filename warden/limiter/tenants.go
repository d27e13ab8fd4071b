// SPDX-License-Identifier: Apache-2.0

// Tenants: whose a task is, and what share of the slots each has.

package limiter

import (
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/fair"
	"github.com/stopbank/stopbank/warden/internal/queue"
)

// Tenants says among whom slots are shared: the tasks with the same [Task].Tenant are those of one tenant (Q25). The zero value is ready to
// use.
type Tenants struct {
	// Keys is how many tenants are told apart at a time, 0 to 1,000,000; 0: 10,000. The one that has been idle longest gives its place
	// to a new one. Keys beyond it, if none is idle, and those longer than 256 bytes share 64 places.
	Keys int
	// Weight returns the weight of a tenant, which is held to 1 to 1,000: one of weight 3 gets three times as much as one of weight 1. nil:
	// all have 1. It is called once for a tenant, without a lock, must be safe for concurrent use, and counts as 1 if it panics.
	Weight func(key string) int
}

const mostKeys = 1_000_000

func (c Tenants) check(field string) error {
	if c.Keys < 0 || c.Keys > mostKeys {
		return invalidField(field+".Keys", c.Keys, "0 (10,000) to 1,000,000")
	}
	return nil
}

func (c Tenants) keys() int {
	if c.Keys == 0 {
		return 10_000
	}
	return c.Keys
}

// SetTenants changes Config.Tenants. It weighs all tenants anew, and calls Weight for each. The error is an [*decision.InvalidError]. It may
// wait microseconds for a mutex and allocates.
func (l *Limiter) SetTenants(c Tenants) error {
	if !l.valid() {
		return errNotMade()
	}
	if err := c.check("Tenants"); err != nil {
		return err
	}
	l.mu.Lock()
	l.weight, l.tenants.Most = c.Weight, c.keys()
	var keys []string
	for t := range l.tenants.All {
		if t.Named {
			keys = append(keys, t.Key)
		}
	}
	l.mu.Unlock()
	for _, key := range keys {
		weight := fair.Weigh(c.Weight, key, l.contain)
		l.mu.Lock()
		if t := l.tenants.Find(key); t != nil {
			l.tenants.Reweigh(t, weight)
			l.queue.Served(t)
		}
		l.mu.Unlock()
	}
	return nil
}

// tenantOf returns the tenant of a key; nil: of none.
func (l *Limiter) tenantOf(key string) *queue.Tenant {
	if key == "" {
		return nil
	}
	l.mu.Lock()
	t, weight := l.tenants.Find(key), l.weight
	l.mu.Unlock()
	if t != nil {
		return t
	}
	n := fair.Weigh(weight, key, l.contain)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tenants.Tenant(key, n, func(*queue.Tenant) {})
}

// presentLocked returns the tenant of that one's key.
func (l *Limiter) presentLocked(of *queue.Tenant) *queue.Tenant {
	if of == nil {
		return nil
	}
	return l.tenants.Present(of, func(*queue.Tenant) {})
}

// queueLocked returns the part of the rule that the queue follows.
func (l *Limiter) queueLocked() queue.Rule {
	r := l.rule.queue()
	if l.tenants.Weights > 0 && l.rule.mode == decision.Enforce {
		r.Slots, r.Weights = l.rule.slots, l.tenants.Weights
		if l.named < l.running {
			r.Weights++ // those without a tenant
		}
		l.tenants.Rest(&l.queue.Others, l.running-l.named)
	}
	return r
}

// shareLocked returns what a tenant has of the slots.
func (l *Limiter) shareLocked(of *queue.Tenant) (s decision.TenantShare) {
	if of == nil {
		return s
	}
	s.InFlight, s.QueueLen = of.InFlight, of.Waiting
	if r := l.queueLocked(); r.Weights > 0 {
		s.Share = float64(r.Slots) * float64(of.Weight) / float64(max(r.Weights, of.Weight))
	}
	return s
}

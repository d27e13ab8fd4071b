// SPDX-License-Identifier: Apache-2.0

// Tenants: compartments created on demand, up to a maximum number, with LRU eviction of idle ones.

package bulkhead

import (
	"cmp"
	"time"

	"github.com/stopbank/stopbank/warden/internal/fair"
)

// Tenant returns the compartment of the tenant with this key, created on demand: it has the settings of c, at most
// Tenants.Max slots, and a queue of its own. Free slots of c go to the waiting tenant with the fewest in flight, then to the
// one that has used the least slot time, both per weight. For an unknown compartment, or one without tenants, Tenant returns c.
// Keys longer than 256 bytes, and new keys while Tenants.Keys tenants exist and none is idle, share a few compartments, the
// same key always the same one; each of them is served as one tenant. The result may be kept for any time. Tenant does not
// block, and allocates only when it creates a compartment.
func (c *Compartment) Tenant(key string) *Compartment {
	if !c.exists() || c.pool.tenants == nil {
		return c
	}
	p, s := c.pool, c.pool.set
	s.mu.Lock()
	t := p.tenants.Find(key)
	s.mu.Unlock()
	if t != nil {
		return t.Of
	}
	weight := fair.Weigh(p.config.Tenants.Weight, key, s.contain)
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.tenants.Tenant(key, weight, p.addLocked).Of
}

// addLocked makes the compartment of a new tenant.
func (p *pool) addLocked(t *fair.Tenant[*Compartment]) {
	t.Of = new(Compartment)
	t.Of.init(p, t)
}

// TenantKey returns the key of a tenant; false: c is not a tenant.
func (c *Compartment) TenantKey() (string, bool) {
	if c == nil || c.tenant == nil {
		return "", false
	}
	return c.tenant.Key, c.tenant.Named
}

// presentLocked returns c, or the current tenant of its key if c was evicted.
func (c *Compartment) presentLocked() *Compartment {
	if c.tenant.Gone {
		return c.pool.tenants.Present(c.tenant, c.pool.addLocked).Of
	}
	return c
}

// chargeLocked adds the slot time of a call that has ended to what c has used.
func (c *Compartment) chargeLocked(took time.Duration) {
	c.pool.tenants.Charge(c.tenant, took, cmp.Or(c.pool.planned.Timeout, fair.MostOwed))
}

// countLocked tells the tenants how many calls of c run and wait.
func (c *Compartment) countLocked() {
	c.tenant.InFlight, c.tenant.Waiting = c.held+c.withoutSlot, c.queue.Len()
}

// Tenants: compartments created on demand, up to a maximum number, with LRU eviction of idle ones.

package bulkhead

import "strings"

// longestKey is the longest tenant key, in bytes: client input must not determine how much memory is kept.
const longestKey = 256

// tenants are the tenants of one pool, guarded by Set.mu. A tenant is idle while it has no waiting or running call. Only idle
// tenants are evicted: when the table is full, the one that has been idle longest.
type tenants struct {
	byKey  map[string]*Compartment
	active int          // tenants that are not idle
	oldest *Compartment // of the idle tenants
	newest *Compartment

	evicted, overflow uint64
}

// tenancy is the state that a tenant adds to a compartment.
type tenancy struct {
	tenant       bool
	key          string // immutable
	active       bool   // has a waiting or running call
	gone         bool   // evicted: another Compartment may have the key now
	older, newer *Compartment
}

// Tenant returns the compartment of the tenant with this key, created on demand: it has the settings of c, at most
// Tenants.Max slots, and a queue of its own. Free slots of c go to the waiting tenant that holds the fewest. For an unknown
// compartment, or one without tenants, Tenant returns c. It also returns c, shared as if by one tenant, for keys longer than
// 256 bytes, and for new keys while Tenants.Keys tenants exist and none is idle. The result may be kept for any time. Tenant
// does not block, and allocates only when it creates a tenant.
func (c *Compartment) Tenant(key string) *Compartment {
	if !c.known() || c.pool.tenants == nil {
		return c
	}
	s := c.pool.set
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.pool.tenant(key)
}

// TenantKey returns the key of a tenant; false: c is not a tenant.
func (c *Compartment) TenantKey() (string, bool) {
	if c == nil {
		return "", false
	}
	return c.key, c.tenant
}

// tenant finds or creates the tenant of this key. The caller holds Set.mu, as for all functions below.
func (p *pool) tenant(key string) *Compartment {
	ts, most := p.tenants, p.config.Tenants.Keys
	if c := ts.byKey[key]; c != nil {
		return c
	}
	if len(key) > longestKey || len(ts.byKey) >= most && ts.oldest == nil {
		ts.overflow++
		return &p.self
	}
	if len(ts.byKey) >= most {
		ts.forget(ts.oldest)
	}
	c := &Compartment{tenancy: tenancy{tenant: true, key: strings.Clone(key)}}
	c.init(p)
	ts.byKey[c.key] = c
	ts.rest(c)
	return c
}

// present returns c, or the current tenant of its key if c was evicted.
func (c *Compartment) present() *Compartment {
	if c.gone {
		return c.pool.tenant(c.key)
	}
	return c
}

// settle adds c to the idle tenants, or removes it, according to its calls.
func (ts *tenants) settle(c *Compartment) {
	switch active := c.held+c.withoutSlot > 0 || c.queue.Len() > 0; {
	case active && !c.active:
		c.active = true
		ts.active++
		ts.unlink(c)
	case !active && c.active:
		c.active = false
		ts.active--
		ts.rest(c)
	}
}

// rest appends c to the idle tenants.
func (ts *tenants) rest(c *Compartment) {
	c.older, c.newer = ts.newest, nil
	if ts.newest == nil {
		ts.oldest = c
	} else {
		ts.newest.newer = c
	}
	ts.newest = c
}

func (ts *tenants) unlink(c *Compartment) {
	if c.older == nil {
		ts.oldest = c.newer
	} else {
		c.older.newer = c.newer
	}
	if c.newer == nil {
		ts.newest = c.older
	} else {
		c.newer.older = c.older
	}
	c.older, c.newer = nil, nil
}

// forget evicts an idle tenant.
func (ts *tenants) forget(c *Compartment) {
	ts.unlink(c)
	delete(ts.byKey, c.key)
	c.gone = true
	ts.evicted++
}

// Tenants: compartments made on demand, as many as there is room for.

package bulkhead

import "strings"

// longestKey is the longest key that is told apart: what a stranger sends must not decide how much is kept.
const longestKey = 256

// tenants are those of one part, guarded by Set.mu. A tenant is idle while no call of it waits or runs; only an idle one is ever
// forgotten: when room is needed, the one that has been idle for longest.
type tenants struct {
	byKey  map[string]*Compartment
	active int          // of them
	oldest *Compartment // of the idle ones
	newest *Compartment

	evicted, overflow uint64
}

// tenancy is what a tenant has beyond a compartment.
type tenancy struct {
	tenant       bool
	key          string // never changes
	active       bool   // a call of it waits or runs
	gone         bool   // forgotten: the key may be another one's now
	older, newer *Compartment
}

// Tenant is the compartment of the tenant with this key, made on demand: it has the settings of c, Tenants.Max places at
// most, and a queue of its own. Freed places of c go to the waiting tenant that has the fewest. The tenant of an unknown
// compartment, or of one without tenants, is c itself; and c itself, as if it were one tenant, stands for
// all keys beyond Tenants.Keys of which none is idle, and for all that are longer than 256 bytes. What it returns may be kept
// for any time. It does not block. It allocates only when it makes a tenant.
func (c *Compartment) Tenant(key string) *Compartment {
	if !c.known() || c.part.tenants == nil {
		return c
	}
	s := c.part.set
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.part.tenant(key)
}

// TenantKey is the key of a tenant; false: this is no tenant.
func (c *Compartment) TenantKey() (string, bool) {
	if c == nil {
		return "", false
	}
	return c.key, c.tenant
}

// tenant finds or makes the tenant of this key. The caller holds Set.mu, as for all below.
func (p *part) tenant(key string) *Compartment {
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
	c.made(p)
	ts.byKey[c.key] = c
	ts.rest(c)
	return c
}

// present is c, or the one that has its key now if c was forgotten.
func (c *Compartment) present() *Compartment {
	if c.gone {
		return c.part.tenant(c.key)
	}
	return c
}

// settle takes c from the idle ones, or puts it there, as it is.
func (ts *tenants) settle(c *Compartment) {
	switch active := c.held+c.beyond > 0 || c.queue.Len() > 0; {
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

// rest puts c at the end of the idle ones.
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

// forget removes an idle tenant.
func (ts *tenants) forget(c *Compartment) {
	ts.unlink(c)
	delete(ts.byKey, c.key)
	c.gone = true
	ts.evicted++
}

// SPDX-License-Identifier: Apache-2.0

// Tenants: compartments created on demand, up to a maximum number, with LRU eviction of idle ones, and what each has used.

package bulkhead

import (
	"cmp"
	"hash/maphash"
	"strings"
	"time"
)

const (
	longestKey = 256 // bytes of a tenant's key: client input must not determine how much memory is kept
	mostShared = 64  // compartments for the keys without a tenant of their own
	mostWeight = 1000

	// mostOwed is the most slot time that a tenant owes if the compartment has no Timeout.
	mostOwed = time.Minute
)

// tenants are the tenants of one pool, guarded by Set.mu. A tenant is idle while it has no waiting or running call. Only idle
// tenants are evicted: when the table is full, the one that has been idle longest.
//
// Among equal numbers in flight, slots are shared by start-time fair queueing (Goyal, Vin, Cheng 1996; with several slots Jin,
// Chase, Kaur 2004): the tenant that has used the least slot time per weight goes first, and now, the virtual time, is what the
// tenant served last had used by then. A tenant that was idle continues at now at least, so it has saved nothing; and what it
// has used beyond now it owes. How long a call takes is known at its end, and charged then.
type tenants struct {
	byKey  map[string]*Compartment
	active int          // tenants that are not idle
	oldest *Compartment // of the idle tenants
	newest *Compartment

	now float64 // virtual time, in seconds of slot time per weight. It never falls

	shared []*Compartment // by hash of the key, created on demand
	seed   maphash.Seed

	evicted, overflow uint64
}

// tenancy is the state that a tenant adds to a compartment. A shared compartment has used and weight like a tenant.
type tenancy struct {
	tenant       bool
	key          string  // immutable
	weight       int     // immutable
	used         float64 // slot time per weight, in seconds, as of tenants.now
	active       bool    // has a waiting or running call
	gone         bool    // evicted: another Compartment may have the key now
	older, newer *Compartment
}

func newTenants(cfg *CompartmentConfig) *tenants {
	return &tenants{
		byKey:  map[string]*Compartment{},
		shared: make([]*Compartment, min(cfg.Tenants.Keys, mostShared)), seed: maphash.MakeSeed(),
	}
}

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
	t := p.tenants.byKey[key]
	s.mu.Unlock()
	if t != nil {
		return t
	}
	weight := p.weigh(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.tenantLocked(key, weight)
}

// weigh returns the weight of a key. It calls foreign code, so the caller does not hold Set.mu.
func (p *pool) weigh(key string) (weight int) {
	if p.config.Tenants.Weight == nil || len(key) > longestKey {
		return 1
	}
	defer func() { weight = min(max(weight, 1), mostWeight) }()
	defer p.set.contain()
	return p.config.Tenants.Weight(key)
}

// TenantKey returns the key of a tenant; false: c is not a tenant.
func (c *Compartment) TenantKey() (string, bool) {
	if c == nil {
		return "", false
	}
	return c.key, c.tenant
}

// tenantLocked finds or creates the tenant of this key.
func (p *pool) tenantLocked(key string, weight int) *Compartment {
	ts, most := p.tenants, p.config.Tenants.Keys
	if c := ts.byKey[key]; c != nil {
		return c
	}
	if len(key) > longestKey || len(ts.byKey) >= most && ts.oldest == nil {
		ts.overflow++
		return p.sharesLocked(key)
	}
	if len(ts.byKey) >= most {
		ts.forget(ts.oldest)
	}
	c := &Compartment{tenancy: tenancy{tenant: true, key: strings.Clone(key)}}
	c.init(p)
	c.weight = weight
	ts.byKey[c.key] = c
	ts.rest(c)
	return c
}

// sharesLocked returns the compartment that this key shares with others, by a hash that clients cannot predict: stochastic
// fairness queueing (McKenney 1990), so that a noisy key fills the queue of few others.
func (p *pool) sharesLocked(key string) *Compartment {
	c := &p.tenants.shared[maphash.String(p.tenants.seed, key)%uint64(len(p.tenants.shared))]
	if *c == nil {
		*c = new(Compartment)
		(*c).init(p)
	}
	return *c
}

// presentLocked returns c, or the current tenant of its key if c was evicted.
func (c *Compartment) presentLocked() *Compartment {
	if c.gone {
		return c.pool.tenantLocked(c.key, c.weight)
	}
	return c
}

// charge adds the slot time of a call that has ended to what c has used.
func (ts *tenants) charge(c *Compartment, took time.Duration) {
	weight, most := float64(c.weight), cmp.Or(c.pool.planned.Timeout, mostOwed)
	c.used = min(c.used+took.Seconds()/weight, ts.now+most.Seconds()/weight)
}

// settle follows the calls of c: it becomes idle, or a tenant that has saved nothing.
func (ts *tenants) settle(c *Compartment) {
	active := c.held+c.withoutSlot > 0 || c.queue.Len() > 0
	if active == c.active {
		return
	}
	if c.active = active; active {
		c.used = max(c.used, ts.now)
	}
	switch {
	case !c.tenant:
	case active:
		ts.active++
		ts.unlink(c)
	default:
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

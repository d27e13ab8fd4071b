// Tenants: compartments made on demand, as many as there is room for.

package bulkhead

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stopbank/stopbank/warden/limiter"
)

// longestKey is the longest key that is told apart: what a stranger sends must not decide how much is kept.
const longestKey = 256

// tenants are those of one part. A tenant is idle while no call of it is under way; only an idle one is ever forgotten. It
// is when room is needed, the one that has been idle for longest; and when it had to wait at some time, because its limiter
// has grown by the queue then.
type tenants struct {
	mu     sync.Mutex // guards all below, and the tenancies
	byKey  map[string]*Compartment
	keys   int
	oldest *Compartment // of the idle ones
	newest *Compartment

	evicted, overflow uint64
	past              limiterCounts // of those forgotten
	recent            recent
}

// tenancy is what a tenant has beyond a compartment. It is guarded by tenants.mu, but for the key, which never changes, and grown.
type tenancy struct {
	tenant       bool
	key          string
	grown        atomic.Bool // a call of it has waited, or was refused
	active       int         // calls under way, until their function has returned
	gone         bool        // forgotten: the key may be another compartment's now
	older, newer *Compartment
}

func newTenants(keys int) *tenants {
	return &tenants{byKey: map[string]*Compartment{}, keys: keys}
}

// Tenant is the compartment of the tenant with this key, made on demand: it has the settings of c, Tenants.Max places at
// most, and a queue of its own. Freed places of c go to the waiting tenant that has the fewest. The tenant of an unknown
// compartment is nil; that of one without tenants is c itself; and c itself, as if it were one tenant, stands for
// all keys beyond Tenants.Keys of which none is idle, and for all that are longer than 256 bytes. What it returns may be kept
// for any time. It does not block. It allocates only when it makes a tenant.
func (c *Compartment) Tenant(key string) *Compartment {
	if !c.made() || c.part.tenants == nil {
		return c
	}
	return c.part.tenant(key)
}

// TenantKey is the key of a tenant; false: this is no tenant.
func (c *Compartment) TenantKey() (string, bool) {
	if c == nil {
		return "", false
	}
	return c.key, c.tenant
}

func (p *part) tenant(key string) *Compartment {
	ts := p.tenants
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if c := ts.byKey[key]; c != nil {
		return c
	}
	if len(key) > longestKey || len(ts.byKey) >= ts.keys && ts.oldest == nil {
		ts.overflow++
		return &p.self
	}
	if len(ts.byKey) >= ts.keys {
		ts.forget(ts.oldest)
	}
	c := &Compartment{tenancy: tenancy{tenant: true, key: strings.Clone(key)}}
	if err := c.open(p, limiter.Config{Recent: 1}); err != nil {
		return &p.self // its configuration has made a limiter before
	}
	ts.byKey[c.key] = c
	ts.rest(c)
	return c
}

// enter says that a call of c begins, and returns the compartment that it is a call of: another one, if c has been
// forgotten.
func (c *Compartment) enter() *Compartment {
	if !c.tenant {
		return c
	}
	for ts := c.part.tenants; ; c = c.part.tenant(c.key) {
		ts.mu.Lock()
		if !c.gone {
			if c.tenant {
				ts.wake(c)
			}
			ts.mu.Unlock()
			c.obey(c.part.set.rules.Load())
			return c
		}
		ts.mu.Unlock()
	}
}

// exit says that a call of c is over.
func (c *Compartment) exit() {
	if !c.tenant {
		return
	}
	ts := c.part.tenants
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if c.active--; c.active > 0 {
		return
	}
	ts.rest(c)
	if c.grown.Load() {
		ts.forget(c)
	}
}

// wake takes c from the idle ones, if it is one. The caller holds mu.
func (ts *tenants) wake(c *Compartment) {
	if c.active++; c.active == 1 {
		ts.unlink(c)
	}
}

// rest puts c at the end of the idle ones. The caller holds mu.
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

// forget removes an idle tenant; its counters stay. The caller holds mu.
func (ts *tenants) forget(c *Compartment) {
	ts.unlink(c)
	delete(ts.byKey, c.key)
	c.gone = true
	ts.evicted++
	last := c.limiter.Stats()
	last.Submitted -= uint64(last.Running) // no call is under way: a place that is reserved now is an offer that nobody is left to take
	last.Running = 0
	ts.past.add(last)
	c.part.set.ledger.withdraw(&c.slots)
}

// SPDX-License-Identifier: Apache-2.0

// The naive model of a set, written from the contract alone: lists of those who wait, and sums made anew whenever one is
// needed.

package bulkhead

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

type callState int

const (
	waits callState = iota
	inside
	over
	rejected
)

// callModel is one call.
type callModel struct {
	pool   *poolModel
	tenant *tenantModel
	state  callState
	why    string // rejected
	would  string // would have been
	since  time.Duration
	due    time.Duration // 0: none
	began  time.Duration
}

// tenantModel is one tenant; a pool without tenants has one that stands for itself.
type tenantModel struct {
	key         string
	held        int
	withoutSlot int          // that run without a slot
	unwanted    int          // that run and would have been rejected
	waiting     []*callModel // in order of arrival
	asked       int          // when it began to wait, or got its last slot while it did; 0: it does not wait. It orders equals
	active      int
	weight      int
	used        float64 // seconds of slot time per weight
}

// before says who of two waiting tenants of p is first: one that may have more, then the fewest in flight per weight, then the
// least slot time.
func (p *poolModel) before(t, u *tenantModel) bool {
	load := func(t *tenantModel) float64 {
		n := t.held + t.withoutSlot
		if p.cfg.Tenants.Max > 0 && n >= p.cfg.Tenants.Max {
			return math.MaxFloat64
		}
		return math.Floor(float64(n) / float64(t.weight))
	}
	return cmp.Or(cmp.Compare(load(t), load(u)), cmp.Compare(t.used, u.used), cmp.Compare(t.asked, u.asked)) < 0
}

type poolModel struct {
	cfg         CompartmentConfig
	plan        Share
	now         Share          // what the decision leaves
	known       []*tenantModel // with tenants: those told apart, the longest idle first
	self        *tenantModel
	shared      map[*Compartment]*tenantModel // of the keys that there is no room for
	served      float64                       // the most slot time that a tenant had used when it got a slot
	evicted     uint64
	submitted   uint64
	rejectedFor map[string]uint64
	admitted    uint64
	finished    uint64
	wouldBe     map[string]uint64
	usual       time.Duration // what its calls take
}

type setModel struct {
	now      time.Duration
	pools    []*poolModel
	planned  int
	total    int
	target   int // of the decision; -1: none
	stale    int // target once it is stale; -1: it stays
	staleAt  time.Duration
	seq      uint64
	revision uint64
	asks     int
}

func newSetModel(cfg Config) *setModel {
	m := &setModel{planned: cfg.Total, target: -1, revision: 1}
	for _, c := range cfg.Compartments {
		m.pools = append(m.pools, &poolModel{cfg: c, plan: Share{c.Name, c.Guaranteed, c.Lendable, c.Max, c.Mode, c.MaxQueue, c.MaxWait,
			c.Timeout}, self: &tenantModel{weight: 1}, shared: map[*Compartment]*tenantModel{}, rejectedFor: map[string]uint64{},
			wouldBe: map[string]uint64{}})
	}
	m.enforce()
	return m
}

func (p *poolModel) held() int {
	n := 0
	for _, t := range p.tenants() {
		n += t.held
	}
	return n
}

func (p *poolModel) withoutSlot() int {
	n := 0
	for _, t := range p.tenants() {
		n += t.withoutSlot
	}
	return n
}

func (p *poolModel) queued() int {
	n := 0
	for _, t := range p.tenants() {
		n += len(t.waiting)
	}
	return n
}

// unreserved is what anybody may take.
func (m *setModel) unreserved() int {
	n := m.total
	for _, p := range m.pools {
		n -= max(p.held(), p.should())
	}
	return n
}

// ranked is the pools, the most critical first.
func (m *setModel) ranked() []*poolModel {
	pools := slices.Clone(m.pools)
	slices.SortStableFunc(pools, func(a, b *poolModel) int { return int(b.cfg.Criticality) - int(a.cfg.Criticality) })
	return pools
}

// enforce works out what the decision leaves of the plan.
func (m *setModel) enforce() {
	m.total = m.planned
	for _, p := range m.pools {
		p.now = p.plan
	}
	if m.target >= 0 && m.target < m.planned {
		m.total = m.target
		pools := m.ranked()
		sum, lent := 0, 0
		for _, p := range pools {
			sum += p.plan.Guaranteed
		}
		have := min(m.total, sum)
		left := have
		for _, p := range pools {
			g := 0
			for g < p.plan.Guaranteed && (g == 0 || (g+1)*sum <= p.plan.Guaranteed*have) {
				g++
			}
			p.now.Guaranteed = g
			left -= g
		}
		of := func(p *poolModel, n int) float64 { return float64(n) / float64(p.plan.Guaranteed) }
		pools = slices.DeleteFunc(pools, func(p *poolModel) bool { return p.plan.Guaranteed == 0 })
		for ; left > 0; left-- {
			slices.MinFunc(pools, func(a, b *poolModel) int {
				return cmp.Compare(of(a, a.now.Guaranteed), of(b, b.now.Guaranteed))
			}).now.Guaranteed++
		}
		slices.Reverse(pools)
		for ; left < 0; left++ {
			slices.MaxFunc(pools, func(a, b *poolModel) int {
				return cmp.Compare(of(a, a.now.Guaranteed-1), of(b, b.now.Guaranteed-1))
			}).now.Guaranteed--
		}
		for _, p := range pools {
			p.now.Lendable = p.plan.Lendable * p.now.Guaranteed / p.plan.Guaranteed
			lent += p.now.Lendable
		}
		for _, p := range m.pools {
			most := p.now.Guaranteed + m.total - have
			if p.cfg.Timeout > 0 {
				most += lent - p.now.Lendable
			}
			p.now.Max = min(p.now.Max, most)
		}
	}
	m.serve()
}

func (p *poolModel) should() int { return p.now.Guaranteed - p.now.Lendable }

func (m *setModel) mayTake(p *poolModel, t *tenantModel) bool {
	left, ofTenant := 0, 0 // calls that a compartment which enforces again has not got rid of
	if p.now.Mode == decision.Enforce {
		left, ofTenant = p.withoutSlot(), t.withoutSlot
	}
	if p.cfg.Tenants.Max > 0 && t.held+ofTenant >= p.cfg.Tenants.Max {
		return false
	}
	held, free := 0, m.total
	for _, p := range m.pools {
		held += p.held()
		free -= max(p.held(), p.now.Guaranteed)
	}
	if m.total < m.planned && p.cfg.Timeout == 0 && p.held() >= p.now.Guaranteed && free <= 0 {
		return false
	}
	return held < m.total && p.held()+left < p.now.Max && (p.held() < p.should() || m.unreserved() > 0)
}

// tenantsOf is everybody who may wait in p.
func (p *poolModel) tenants() []*tenantModel {
	all := append([]*tenantModel{p.self}, p.known...)
	for _, t := range p.shared {
		all = append(all, t)
	}
	return all
}

// next is who gets the next slot.
func (m *setModel) next() (bestPart *poolModel, best *tenantModel) {
	own := func(p *poolModel) bool { return p.held() < p.now.Guaranteed }
	for _, p := range m.ranked() {
		var t *tenantModel
		for _, u := range p.tenants() {
			if u.asked > 0 && (m.mayTake(p, u) || p.now.Mode != decision.Enforce) && (t == nil || p.before(u, t)) {
				t = u
			}
		}
		if t == nil {
			continue
		}
		b := bestPart
		if b != nil {
			switch {
			case own(p) != own(b):
				if own(b) {
					continue
				}
			case p.cfg.Criticality != b.cfg.Criticality:
				continue // b is more critical
			case own(p) && p.held()*b.now.Guaranteed >= b.held()*p.now.Guaranteed:
				continue
			case !own(p) && p.held()-p.now.Guaranteed >= b.held()-b.now.Guaranteed:
				continue
			}
		}
		bestPart, best = p, t
	}
	return bestPart, best
}

func (m *setModel) serve() {
	for {
		_, t := m.next()
		if t == nil {
			return
		}
		t.asked = 0
		c := t.waiting[0]
		if m.stands(t) {
			c = t.waiting[len(t.waiting)-1]
		}
		t.waiting = slices.DeleteFunc(t.waiting, func(w *callModel) bool { return w == c })
		m.start(c)
		if len(t.waiting) > 0 {
			m.asks++
			t.asked = m.asks
		}
	}
}

// stands is whether the oldest has waited for longer than a burst, or than the calls of its pool usually take.
func (m *setModel) stands(t *tenantModel) bool {
	return len(t.waiting) > 0 && m.now-t.waiting[0].since > max(25*time.Millisecond, t.waiting[0].pool.usual)
}

func (m *setModel) start(c *callModel) {
	c.began = m.now
	c.state = inside
	if m.mayTake(c.pool, c.tenant) {
		c.tenant.held++
		c.pool.served = max(c.pool.served, c.tenant.used)
	} else {
		c.tenant.withoutSlot++
	}
	c.pool.admitted++
}

func (m *setModel) reject(c *callModel, why string) {
	c.state, c.why = rejected, why
	c.pool.rejectedFor[why]++
	m.leave(c)
}

// leave ends a tenant's call.
func (m *setModel) leave(c *callModel) {
	p, t := c.pool, c.tenant
	if t.active--; t.active > 0 || !slices.Contains(p.known, t) {
		return
	}
	p.known = slices.DeleteFunc(p.known, func(u *tenantModel) bool { return u == t })
	p.known = append(p.known, t)
}

// tenant is who the call is a call of; shared is whose a key is that there is no room for.
func (p *poolModel) tenant(key string, shared *Compartment) *tenantModel {
	if p.cfg.Tenants.Max == 0 {
		return p.self
	}
	for _, t := range p.known {
		if t.key == key {
			return t
		}
	}
	if len(p.known) == p.cfg.Tenants.Keys {
		i := slices.IndexFunc(p.known, func(t *tenantModel) bool { return t.active == 0 })
		if i < 0 {
			if p.shared[shared] == nil {
				p.shared[shared] = &tenantModel{weight: 1}
			}
			return p.shared[shared]
		}
		p.known = slices.Delete(p.known, i, i+1)
		p.evicted++
	}
	t := &tenantModel{key: key, weight: 1}
	if p.cfg.Tenants.Weight != nil {
		t.weight = p.cfg.Tenants.Weight(key)
	}
	p.known = append(p.known, t)
	return t
}

func (m *setModel) submit(p *poolModel, key string, shared *Compartment) *callModel {
	c := &callModel{pool: p, tenant: p.tenant(key, shared), since: m.now}
	t := c.tenant
	if t.active == 0 {
		t.used = max(t.used, p.served)
	}
	t.active++
	p.submitted++
	if p.cfg.MaxWait > 0 {
		c.due = m.now + p.cfg.MaxWait
	}
	if len(t.waiting) == 0 && m.mayTake(p, t) {
		t.asked = 0
		m.start(c)
		return c
	}
	if p.now.Mode != decision.Enforce {
		m.startWithoutSlot(c)
		return c
	}
	full := len(t.waiting) >= p.cfg.MaxQueue
	if full && p.cfg.MaxQueue > 0 && m.stands(t) {
		oldest := t.waiting[0]
		t.waiting = t.waiting[1:]
		m.reject(oldest, string(decision.QueueOverflow))
		full = false
	}
	switch {
	case full:
		m.reject(c, string(decision.QueueOverflow))
	default:
		if t.asked == 0 {
			m.asks++
			t.asked = m.asks
		}
		t.waiting = append(t.waiting, c)
	}
	return c
}

func (m *setModel) release(c *callModel) {
	c.state = over
	if c.tenant.withoutSlot > 0 {
		c.tenant.withoutSlot-- // it takes over the slot
	} else {
		c.tenant.held--
	}
	if c.would != "" {
		c.tenant.unwanted--
	}
	took, p := m.now-c.began, c.pool
	if p.finished++; p.usual == 0 {
		p.usual = took
	}
	p.usual += (took - p.usual) / 16
	owed := time.Minute
	if p.cfg.Timeout > 0 {
		owed = p.cfg.Timeout
	}
	t := c.tenant
	t.used = min(t.used+took.Seconds()/float64(t.weight), p.served+owed.Seconds()/float64(t.weight))
	m.leave(c)
	m.serve()
}

func (m *setModel) cancel(c *callModel, why string) {
	t := c.tenant
	t.waiting = slices.DeleteFunc(t.waiting, func(w *callModel) bool { return w == c })
	if len(t.waiting) == 0 {
		t.asked = 0
	}
	m.reject(c, why)
}

func (m *setModel) advance(d time.Duration) {
	for end := m.now + d; ; {
		at, who := end, (*callModel)(nil)
		for _, p := range m.pools {
			for _, t := range p.tenants() {
				for _, c := range t.waiting {
					if c.due > 0 && c.due < at {
						at, who = c.due, c
					}
				}
			}
		}
		if m.staleAt > 0 && m.staleAt < at {
			at, who = m.staleAt, nil
		}
		m.now = at
		switch {
		case who != nil:
			m.cancel(who, string(TimeoutQueued))
		case at == m.staleAt && at < end:
			m.staleAt = 0
			if m.stale >= 0 {
				m.target = m.stale
			}
			m.enforce()
		default:
			return
		}
	}
}

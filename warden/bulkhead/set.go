// SPDX-License-Identifier: Apache-2.0

// The set of compartments: construction and lookup.

package bulkhead

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/fair"
	"github.com/stopbank/stopbank/warden/internal/patience"
	"github.com/stopbank/stopbank/warden/internal/queue"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Set is a group of compartments that share a total number of slots. All methods are safe for concurrent use. A Set starts no
// goroutines except for functions with a Timeout and to end a decision that is not renewed, and needs no cleanup. It must not
// be copied. A nil or zero Set has no compartments: it rejects every call, and every plan, with an [*decision.InvalidError].
type Set struct {
	observer Observer
	epoch    time.Time
	pools    []*pool // in the order of Config
	ranked   []*pool // the most critical first
	byName   map[string]*pool
	waiters  queue.Pool[outcome]

	// guards all below, and all unconfigured fields of pools, compartments and tenants; no foreign code runs while it is held
	mu sync.Mutex

	total, unreserved, held int // slots; see slots.go
	waiting                 int // compartments and tenants with waiting calls
	turns                   uint64

	// plan is the plan in force, and decided the decision applied last; nil: none.
	plan          Plan
	resizedAt     time.Time // zero: never
	decided       *decision.ControlDecision
	decisionState decision.DecisionState
	expiry        *time.Timer       // nil until a decision has ValidFor
	recorder      *monitor.Recorder // that the compartments feed; nil: none

	// Of proposals; see propose.go.
	due          atomic.Int64 // the age of the set at which the window may end; read without mu
	opened       time.Duration
	peak, before int       // the most slots held in this window, and in the one before
	proposed     uint64    // the revision of the plan since the first of them
	proposal     *Proposal // nil: none

	unknown uint64 // calls of unknown compartments
	panics  uint64 // of foreign code, recovered
}

// pool is a configured compartment: the state that it shares with its tenants.
type pool struct {
	set     *Set
	config  CompartmentConfig
	open    func() bool                      // whether the breaker is open; nil: it has no State
	refused error                            // its last error, and
	refuses bool                             // whether its last answer was one; guarded by Set.mu
	record  patience.Record                  // of those answered, as the breaker was told; guarded by Set.mu
	feeds   atomic.Pointer[monitor.Recorder] // what the executions are reported to; nil: nothing
	bounds  atomic.Pointer[Share]            // planned, for those who do not hold Set.mu
	self    Compartment                      // the compartment itself
	tenants *fair.Table[*Compartment]        // nil: no tenants

	rejections *queue.Recent[decision.Explanation]
	delayed    *queue.Recent[decision.Explanation] // calls that started after waiting

	planned, share    Share                     // by the plan alone, and under the decision
	lowered           bool                      // share.Max is what the decision says of this compartment
	rule              *decision.ControlDecision // the decision as it applies to this pool
	held, withoutSlot int                       // calls with a slot, and calls beyond the slots
	waiting           waiting
	counts            counts
	window            window
	cohorts           cohorts
	demand            demand
}

// Compartment is one bulkhead of a [Set], or one tenant of one. Its methods are safe for concurrent use, also on nil,
// which stands for an unknown compartment.
type Compartment struct {
	pool        *pool // nil: unknown name
	unknown     unknown
	queue       queue.Queue[outcome]
	held        int
	withoutSlot int    // calls that run without a slot
	unwanted    int    // running calls that Enforce would have rejected, in a dry run
	turn        uint64 // breaks ties; 0: no call waits
	index       int    // in pool.waiting
	tenant      *fair.Tenant[*Compartment]
}

// unknown identifies a compartment that does not exist.
type unknown struct {
	set  *Set
	name string
}

// New returns a set, ready for use. The error, an [*decision.InvalidError], names the invalid field of cfg.
func New(cfg Config) (*Set, error) {
	plan, err := cfg.check()
	if err != nil {
		return nil, err
	}
	s := &Set{observer: cfg.Observer, epoch: time.Now(), plan: plan, decisionState: decision.Initial, byName: map[string]*pool{}}
	for i, c := range cfg.Compartments {
		p := &pool{set: s, config: c.defaults(), rejections: queue.NewRecent[decision.Explanation](recentKept),
			delayed: queue.NewRecent[decision.Explanation](recentKept)}
		p.counts.rejectedFor, p.counts.wouldReject = map[decision.RejectionReason]uint64{}, map[decision.RejectionReason]uint64{}
		p.cohorts.open = new(cohort)
		p.open, p.refused = breakerOpen(c.Breaker), errOpen
		p.bounds.Store(&plan.Compartments[i])
		p.self.init(p, &fair.Tenant[*Compartment]{Of: &p.self, Weight: 1})
		if p.config.Tenants.Max > 0 {
			p.tenants = &fair.Table[*Compartment]{Most: p.config.Tenants.Keys}
		}
		s.pools = append(s.pools, p)
		s.byName[c.Name] = p
	}
	s.ranked = byCriticality(s.pools)
	s.start()
	s.observeModes(modeChanges(make([]Share, len(s.pools)), s.plan.Compartments))
	return s, nil
}

func (s *Set) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enforceLocked()
}

func (s *Set) valid() bool { return s != nil && s.byName != nil }

// recentKept is the number of rejections, and separately of delayed starts, that a compartment keeps.
const recentKept = 128

// init sets c up as a compartment, or a tenant, of p.
func (c *Compartment) init(p *pool, t *fair.Tenant[*Compartment]) {
	c.pool, c.tenant = p, t
	c.queue = queue.Queue[outcome]{Limit: p.bounds.Load().MaxQueue, Left: c.dropLocked}
}

// byCriticality returns a copy, most critical first, stable.
func byCriticality(pools []*pool) []*pool {
	pools = slices.Clone(pools)
	slices.SortStableFunc(pools, func(a, b *pool) int { return int(b.config.Criticality) - int(a.config.Criticality) })
	return pools
}

// Compartment returns the compartment of that name. For an unknown name it returns one that rejects every call with
// [ErrUnknownCompartment]. It does not block, and allocates nothing for a known name.
func (s *Set) Compartment(name string) *Compartment {
	if !s.valid() {
		return &Compartment{unknown: unknown{name: name}}
	}
	if p := s.byName[name]; p != nil {
		return &p.self
	}
	return &Compartment{unknown: unknown{s, name}}
}

// Total returns the number of slots of all compartments by the current plan, before any decision; 0 for a nil or zero Set. The
// controller of a warden whose decisions the set follows begins with that many at least. It does not block and allocates
// nothing.
func (s *Set) Total() int {
	if !s.valid() {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plan.Total
}

// exists reports whether c belongs to a Set. Otherwise c rejects every call.
func (c *Compartment) exists() bool { return c != nil && c.pool != nil }

// unknownError returns the error of every call of an unknown compartment, and counts the call.
func (c *Compartment) unknownError() error {
	switch {
	case c == nil:
		return &unknownCompartmentError{}
	case c.unknown.set == nil:
		return errNotMade()
	}
	s := c.unknown.set
	s.mu.Lock()
	s.unknown++
	s.mu.Unlock()
	return &unknownCompartmentError{c.unknown.name, s}
}

// Holds reports whether ctx belongs to a call that holds a slot of c now: it is the context from [Do] or
// [Compartment.Acquire], or derives from it. A tenant's slots count as its compartment's. Holds allocates nothing.
func (c *Compartment) Holds(ctx context.Context) bool { return c.exists() && c.pool.entered(ctx) }

// Mode returns the mode in force; Enforce if c is unknown. It may wait microseconds for a mutex.
func (c *Compartment) Mode() decision.Mode {
	if !c.exists() {
		return decision.Enforce
	}
	s := c.pool.set
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.pool.share.Mode
}

// Full reports whether others need what a call holds: one that came now would find no slot, or others before it, or a breaker that
// has refused the call before. It may wait microseconds for a mutex.
func (c *Compartment) Full() bool {
	if !c.exists() {
		return false
	}
	s := c.pool.set
	s.mu.Lock()
	defer s.mu.Unlock()
	c = c.presentLocked()
	return c.queue.Len() > 0 || !s.freeLocked(c) || c.pool.refuses
}

// Name returns the name of the compartment, "" for nil. A tenant has the name of its compartment.
func (c *Compartment) Name() string {
	switch {
	case c == nil:
		return ""
	case c.pool == nil:
		return c.unknown.name
	}
	return c.pool.config.Name
}

// Criticality returns the configured criticality, 0 for an unknown compartment.
func (c *Compartment) Criticality() decision.Priority {
	if !c.exists() {
		return 0
	}
	return c.pool.config.Criticality
}

// The set: what is asked of it.

package bulkhead

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// Set is a number of compartments that share a total. All its methods may be called by any number of goroutines. It
// starts no goroutine but for functions with a Timeout, and needs no cleaning up. It must come from [New] and must not
// be copied.
type Set struct {
	ledger   ledger
	parts    []*part // in the order of Config
	byName   map[string]*part
	observer Observer
	panics   atomic.Uint64 // of the observer
	rules    atomic.Pointer[rules]

	mu sync.Mutex // guards all below; held while the ledger and the limiters are told, so observers come later
	// plan is how the places are shared, and decided what was applied last; nil: nothing was.
	plan    Plan
	decided *decision.ControlDecision
	stale   bool        // decided has outlived its ValidFor
	expiry  *time.Timer // nil until a decision has ValidFor
	seq     uint64      // of the decisions that the limiters get
}

// part is a compartment as configured: what it has in common with its tenants.
type part struct {
	set     *Set
	config  CompartmentConfig
	account account
	self    Compartment // the compartment itself: the one there is, or the one that tenants without a place of their own share
	tenants *tenants    // nil: it is not divided
	window  window
	tally   tally
}

// Compartment is one part of a [Set], or one tenant of such a part. Its methods may be called by any number of
// goroutines, and on nil, which stands for a compartment that is not known.
type Compartment struct {
	part    *part
	limiter *limiter.Limiter
	slots   member
	ruled   atomic.Pointer[rules] // what the limiter was told last
	tenancy                       // zero of a part's own compartment
}

// New returns a set that is ready to be used. The error, an [*InvalidError], names the field of cfg that is wrong.
func New(cfg Config) (*Set, error) {
	plan, err := cfg.check()
	if err != nil {
		return nil, err
	}
	s := &Set{observer: cfg.Observer, plan: plan, byName: map[string]*part{}}
	for _, c := range cfg.Compartments {
		p := &part{set: s, config: c.defaults()}
		p.window.epoch = time.Now()
		p.account.ledger, p.account.criticality, p.account.divided = &s.ledger, c.Criticality, c.Tenants.Max > 0
		if p.account.divided {
			p.tenants = newTenants(p.config.Tenants.Keys)
		}
		s.parts = append(s.parts, p)
		s.byName[c.Name] = p
	}
	for _, p := range byCriticality(s.parts) {
		s.ledger.accounts = append(s.ledger.accounts, &p.account)
	}
	s.rules.Store(s.judge())
	for _, p := range s.parts {
		if err := p.self.open(p, limiter.Config{}); err != nil {
			return nil, err
		}
	}
	s.ledger.share(s.rules.Load().total, s.rules.Load().shares)
	return s, nil
}

// byCriticality is a copy with the most critical first, equals as they were.
func byCriticality(parts []*part) []*part {
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b *part) int { return int(b.config.Criticality) - int(a.config.Criticality) })
	return parts
}

// open gives c its limiter, under the present rules.
func (c *Compartment) open(p *part, cfg limiter.Config) error {
	c.part = p
	c.slots = member{account: &p.account, max: p.config.Tenants.Max}
	c.ruled.Store(p.set.rules.Load())
	cfg.Name, cfg.MaxQueue, cfg.Slots = p.config.Name, p.config.MaxQueue, &c.slots
	cfg.StandAfter = math.MaxInt64 // in order of arrival: nobody who is owed a place is refused because others wait long
	cfg.Initial = c.ruled.Load().of(p)
	l, err := limiter.New(cfg)
	c.limiter, c.slots.limiter = l, l
	return err
}

// Compartment is the compartment of that name, nil if there is none. It does not block and allocates nothing.
func (s *Set) Compartment(name string) *Compartment {
	if p := s.byName[name]; p != nil {
		return &p.self
	}
	return nil
}

// Compartments are all of them, in the order of Config, without tenants. It allocates the slice.
func (s *Set) Compartments() []*Compartment {
	all := make([]*Compartment, len(s.parts))
	for i, p := range s.parts {
		all[i] = &p.self
	}
	return all
}

// made is false for nil and for a Compartment that no Set has made: they have nothing, and refuse every call.
func (c *Compartment) made() bool { return c != nil && c.part != nil }

// Name is the name of the compartment, "" of nil. A tenant has the name of its compartment.
func (c *Compartment) Name() string {
	if !c.made() {
		return ""
	}
	return c.part.config.Name
}

// Criticality is as configured, 0 of nil.
func (c *Compartment) Criticality() limiter.Priority {
	if !c.made() {
		return 0
	}
	return c.part.config.Criticality
}

// Timeout is as configured, 0 of nil.
func (c *Compartment) Timeout() time.Duration {
	if !c.made() {
		return 0
	}
	return c.part.config.Timeout
}

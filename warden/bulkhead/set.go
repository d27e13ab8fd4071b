// The set: what is asked of it.

package bulkhead

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/queue"
	"github.com/stopbank/stopbank/warden/limiter"
)

// Set is a number of compartments that share a total. All its methods may be called by any number of goroutines. It
// starts no goroutine but for functions with a Timeout, and needs no cleaning up. It must not be copied. A nil or zero Set
// has no compartments: every call in one, and every plan, is refused with an [*InvalidError].
type Set struct {
	observer Observer
	epoch    time.Time
	parts    []*part // in the order of Config
	ranked   []*part // the most critical first
	byName   map[string]*part
	waiters  queue.Pool[outcome]

	mu sync.Mutex // guards all below, and what is not configured of parts, compartments and tenants; no foreign code runs while it is held

	total, stock, held int // places; see places.go
	waiting            int // compartments and tenants that wait for a place
	turns              uint64

	// plan is how the places are shared, and decided what was applied last; nil: nothing was.
	plan     Plan
	decided  *decision.ControlDecision
	standing limiter.Standing
	expiry   *time.Timer // nil until a decision has ValidFor

	unknown uint64 // calls of compartments that there are not
	panics  uint64 // of the observer
}

// part is a compartment as configured: what it has in common with its tenants.
type part struct {
	set     *Set
	config  CompartmentConfig
	open    func() bool // whether the breaker says that it is open; nil: it does not say
	self    Compartment // the compartment itself: the one there is, or the one that tenants without a place of their own share
	tenants *tenants    // nil: it is not divided

	refusals *queue.Recent[limiter.Explanation]
	delayed  *queue.Recent[limiter.Explanation] // calls that started after waiting

	boundedBy limiter.DeadlineSource // whose config.MaxWait is: it may be the Timeout

	planned, share Share                     // as the plan says, and as the decision leaves it
	rule           *decision.ControlDecision // the decision, as far as it concerns this part
	held, beyond   int                       // of the places, and beyond them
	waiting        waiting
	counts         counts
	window         window
}

// Compartment is one part of a [Set], or one tenant of such a part. Its methods may be called by any number of
// goroutines, and on nil, which stands for a compartment that is not known.
type Compartment struct {
	part     *part // nil: there is none of this name
	unknown  unknown
	queue    queue.Queue[outcome]
	held     int
	beyond   int    // calls that run without a place
	unwanted int    // calls that run and would have been refused, in a dry run
	turn     uint64 // orders those that hold as many; 0: nobody waits
	index    int    // in part.waiting
	tenancy         // zero of a part's own compartment
}

// unknown is a compartment that was asked for, and is not there.
type unknown struct {
	set  *Set
	name string
}

// New returns a set that is ready to be used. The error, an [*InvalidError], names the field of cfg that is wrong.
func New(cfg Config) (*Set, error) {
	plan, err := cfg.check()
	if err != nil {
		return nil, err
	}
	s := &Set{observer: cfg.Observer, epoch: time.Now(), plan: plan, standing: limiter.Initial, byName: map[string]*part{}}
	for _, c := range cfg.Compartments {
		p := &part{set: s, config: c.defaults(), refusals: queue.NewRecent[limiter.Explanation](recentKept), delayed: queue.NewRecent[limiter.Explanation](recentKept)}
		p.open = saysOpen(c.Breaker)
		if p.boundedBy = limiter.FromMaxWait; c.MaxWait == 0 {
			p.boundedBy = limiter.FromTimeout
		}
		p.self.made(p)
		if p.config.Tenants.Max > 0 {
			p.tenants = &tenants{byKey: map[string]*Compartment{}}
		}
		s.parts = append(s.parts, p)
		s.byName[c.Name] = p
	}
	s.ranked = byCriticality(s.parts)
	s.begun()
	s.tellModes(changed(make([]Share, len(s.parts)), s.plan.Compartments))
	return s, nil
}

func (s *Set) begun() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enforce()
}

func (s *Set) made() bool { return s != nil && s.byName != nil }

// recentKept is how many refusals a compartment keeps, and how many delayed starts.
const recentKept = 128

// made makes c a compartment, or a tenant, of p.
func (c *Compartment) made(p *part) {
	c.part = p
	c.queue = queue.Queue[outcome]{Limit: p.config.MaxQueue, Left: c.dismiss}
}

// byCriticality is a copy with the most critical first, equals as they were.
func byCriticality(parts []*part) []*part {
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b *part) int { return int(b.config.Criticality) - int(a.config.Criticality) })
	return parts
}

// Compartment is the compartment of that name. If there is none, it is one that refuses every call with an
// [*UnknownCompartmentError]. It does not block, and allocates nothing if there is one.
func (s *Set) Compartment(name string) *Compartment {
	if !s.made() {
		return &Compartment{unknown: unknown{name: name}}
	}
	if p := s.byName[name]; p != nil {
		return &p.self
	}
	return &Compartment{unknown: unknown{s, name}}
}

// Compartments are all of them, in the order of Config, without tenants. It allocates the slice.
func (s *Set) Compartments() []*Compartment {
	if !s.made() {
		return nil
	}
	all := make([]*Compartment, len(s.parts))
	for i, p := range s.parts {
		all[i] = &p.self
	}
	return all
}

// known is false for nil, for a Compartment that there is not, and for one that no Set has made: they refuse every call.
func (c *Compartment) known() bool { return c != nil && c.part != nil }

// refusal is what calls of a compartment that is not known are told.
func (c *Compartment) refusal() error {
	switch {
	case c == nil:
		return &UnknownCompartmentError{}
	case c.unknown.set == nil:
		return notMade()
	}
	s := c.unknown.set
	s.mu.Lock()
	s.unknown++
	s.mu.Unlock()
	return &UnknownCompartmentError{c.unknown.name}
}

// Holds is whether ctx is that of a call which has its place in c now: the one that [Do] or [Compartment.Acquire] has given it, or one
// made from that. The places of a tenant are its compartment's. It allocates nothing.
func (c *Compartment) Holds(ctx context.Context) bool { return c.known() && c.part.entered(ctx) }

// Name is the name of the compartment, "" of nil. A tenant has the name of its compartment.
func (c *Compartment) Name() string {
	switch {
	case c == nil:
		return ""
	case c.part == nil:
		return c.unknown.name
	}
	return c.part.config.Name
}

// Criticality is as configured, 0 if the compartment is not known.
func (c *Compartment) Criticality() limiter.Priority {
	if !c.known() {
		return 0
	}
	return c.part.config.Criticality
}

// Timeout is as configured, 0 if the compartment is not known.
func (c *Compartment) Timeout() time.Duration {
	if !c.known() {
		return 0
	}
	return c.part.config.Timeout
}

// What a set knows about itself.

package bulkhead

import (
	"fmt"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// Snapshot is the state of a set. Each compartment's numbers agree with each other as soon as none of its calls is under
// way; durations are in nanoseconds in JSON.
type Snapshot struct {
	At       time.Time `json:"at"`
	Revision uint64    `json:"revision"` // of the plan, from 1
	Total    int       `json:"total"`    // of the plan
	// EffectiveTotal is what the applied decision leaves of it.
	EffectiveTotal int `json:"effective_total"`
	InFlight       int `json:"in_flight"`
	// Decision is what was applied last; nil: nothing. It is shared: read it, do not write to it.
	Decision *decision.ControlDecision `json:"decision,omitempty"`
	// Stale is whether Decision has outlived its ValidFor, so that its Stale decision rules.
	Stale          bool                  `json:"stale,omitempty"`
	ObserverPanics uint64                `json:"observer_panics"`
	Compartments   []CompartmentSnapshot `json:"compartments"` // in the order of Config
}

// CompartmentSnapshot is the state of one compartment, its tenants included.
//
// At rest, Submitted is Admitted and all of Rejected and Left and Queued together; Admitted is Finished and InFlight; and
// the outcomes of Outcomes add up to Finished + Abandoned.
type CompartmentSnapshot struct {
	Name        string           `json:"name"`
	Criticality limiter.Priority `json:"criticality"`
	InFlight    int              `json:"in_flight"`
	Queued      int              `json:"queued"`
	MaxQueue    int              `json:"max_queue"`

	// As the plan says.
	Guaranteed int `json:"guaranteed"`
	Lendable   int `json:"lendable"`
	Max        int `json:"max"`
	// As the applied decision leaves it.
	EffectiveGuaranteed int `json:"effective_guaranteed"`
	EffectiveLendable   int `json:"effective_lendable"`
	EffectiveMax        int `json:"effective_max"`
	// Lent is how many of its guaranteed places others use, Borrowed how many it uses beyond its guarantee.
	Lent     int `json:"lent"`
	Borrowed int `json:"borrowed"`

	Submitted uint64            `json:"submitted"` // calls
	Admitted  uint64            `json:"admitted"`  // functions called
	Finished  uint64            `json:"finished"`  // functions returned
	Outcomes  map[string]uint64 `json:"outcomes"`  // callers answered, by Outcome
	Rejected  map[string]uint64 `json:"rejected"`  // on arrival, by reason
	Left      map[string]uint64 `json:"left"`      // before they were given a place, by reason

	// RejectionRate is the share of the last minute's calls that were refused, for any reason but their caller's cancel;
	// 0..1.
	RejectionRate float64 `json:"rejection_rate"`
	// Execution describes how long functions ran that returned in the last minute.
	Execution Execution `json:"execution"`

	Abandoned      int    `json:"abandoned"`       // functions that run now and whose caller is gone
	AbandonedTotal uint64 `json:"abandoned_total"` // callers gone before their function returned
	LatePanics     uint64 `json:"late_panics"`     // of abandoned functions, contained

	Degraded          uint64 `json:"degraded"`         // answered by a fallback
	FallbacksFailed   uint64 `json:"fallbacks_failed"` // with an error or a panic
	FallbacksRefused  uint64 `json:"fallbacks_refused"`
	FallbacksInFlight int    `json:"fallbacks_in_flight"`

	Tenants *TenantsSnapshot `json:"tenants,omitempty"` // nil: it has none
	Health  Health           `json:"health"`
}

// Execution describes execution times. All are 0 while Count is.
type Execution struct {
	Count uint64        `json:"count"`
	Mean  time.Duration `json:"mean"`
	P50   time.Duration `json:"p50"`
	P90   time.Duration `json:"p90"`
	P99   time.Duration `json:"p99"`
}

// TenantsSnapshot sums up the tenants of a compartment.
type TenantsSnapshot struct {
	Keys     int    `json:"keys"`       // told apart now
	MaxKeys  int    `json:"max_keys"`   // at most
	Active   int    `json:"active"`     // of them, with calls under way
	Max      int    `json:"max"`        // places of one tenant
	Evicted  uint64 `json:"evicted"`    // idle ones that were forgotten
	Overflow uint64 `json:"overflowed"` // lookups that got the shared compartment
}

// Health is a verdict and its reason.
type Health struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"` // why not
}

// Snapshot is the state of the set. It may wait for mutexes that are held for microseconds; with tenants, it asks the
// limiter of each. It allocates.
func (s *Set) Snapshot() Snapshot {
	s.mu.Lock()
	out := Snapshot{
		At: time.Now(), Revision: s.plan.Revision, Total: s.plan.Total,
		Decision: s.decided, Stale: s.stale, ObserverPanics: s.panics.Load(),
	}
	plan := s.plan.Compartments
	s.mu.Unlock()
	lent := s.ledger.lent()
	out.EffectiveTotal = lent.total
	for i, p := range s.parts {
		c := p.snapshot()
		c.Guaranteed, c.Lendable, c.Max = plan[i].Guaranteed, plan[i].Lendable, plan[i].Max
		e := lent.of[&p.account]
		c.EffectiveGuaranteed, c.EffectiveLendable, c.EffectiveMax = e.guaranteed, e.lendable, e.max
		c.InFlight, c.Lent, c.Borrowed = e.held, e.lent, e.borrowed
		out.InFlight += e.held
		out.Compartments = append(out.Compartments, c)
	}
	return out
}

// Snapshot is the state of the compartment, or of the one that the tenant is of; zero of nil.
func (c *Compartment) Snapshot() CompartmentSnapshot {
	if !c.made() {
		return CompartmentSnapshot{}
	}
	for i, p := range c.part.set.parts {
		if p == c.part {
			return c.part.set.Snapshot().Compartments[i]
		}
	}
	return CompartmentSnapshot{}
}

// snapshot is all but what the plan and the ledger know. What is derived is never below 0, also while calls are under way
// and the numbers are of different instants.
func (p *part) snapshot() CompartmentSnapshot {
	t := &p.tally
	abandoned := max(0, t.abandonedNow.Load())
	fallbacks := t.fallbacks.Load()
	n := p.counts()
	open, timeouts, reentries := t.breakerOpen.Load(), t.queueTimeouts.Load(), t.reentries.Load()
	c := CompartmentSnapshot{
		Name: p.config.Name, Criticality: p.config.Criticality, Queued: n.queued, MaxQueue: p.config.MaxQueue,
		Submitted: n.submitted + reentries,
		Finished:  less(n.executed, open),
		Outcomes:  map[string]uint64{}, Rejected: map[string]uint64{}, Left: map[string]uint64{},
		Abandoned: int(abandoned), AbandonedTotal: t.abandoned.Load(), LatePanics: t.latePanics.Load(),
		Degraded: t.degraded.Load(), FallbacksFailed: t.fallbacksFailed.Load(), FallbacksRefused: t.fallbacksRefused.Load(),
		FallbacksInFlight: int(fallbacks),
	}
	c.Admitted = c.Finished + uint64(n.running)
	count := func(m map[string]uint64, name string, n uint64) {
		if n > 0 {
			m[name] = n
		}
	}
	answered := c.Finished + uint64(abandoned)
	for out := Failed; out < Refused; out++ {
		n := t.outcomes[out].Load()
		count(c.Outcomes, out.String(), n)
		answered = less(answered, n)
	}
	count(c.Outcomes, Succeeded.String(), answered)
	count(c.Rejected, ReasonBreakerOpen, open)
	count(c.Rejected, ReasonReentry, reentries)
	count(c.Left, ReasonTimeoutQueued, timeouts)
	for i, n := range n.refusedFor {
		switch r := limiter.Reason(i); r {
		case limiter.DeadlineExceeded:
			count(c.Left, r.String(), less(n, timeouts))
		case limiter.Canceled, limiter.PriorityDrop, limiter.Closed:
			count(c.Left, r.String(), n)
		default:
			count(c.Rejected, r.String(), n)
		}
	}
	c.RejectionRate, c.Execution = p.window.read(p)
	c.Health = c.health()
	if ts := p.tenants; ts != nil {
		c.Tenants = ts.snapshot(p.config.Tenants)
	}
	return c
}

func less(a, b uint64) uint64 { return a - min(a, b) }

// tooMany is the share of refused calls that a critical compartment must not exceed.
const tooMany = 0.05

func (c *CompartmentSnapshot) health() Health {
	if c.Criticality == limiter.Critical && c.RejectionRate > tooMany {
		return Health{Reason: fmt.Sprintf("critical, and %.1f %% of the last minute's calls were refused; allowed: 5 %%", 100*c.RejectionRate)}
	}
	return Health{OK: true}
}

func (ts *tenants) snapshot(cfg TenantsConfig) *TenantsSnapshot {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	out := &TenantsSnapshot{Keys: len(ts.byKey), MaxKeys: cfg.Keys, Max: cfg.Max, Evicted: ts.evicted, Overflow: ts.overflow}
	for _, c := range ts.byKey {
		if c.active > 0 {
			out.Active++
		}
	}
	return out
}

// loans is how the places are used.
type loans struct {
	total int
	of    map[*account]loan
}

type loan struct{ held, guaranteed, lendable, max, lent, borrowed int }

// lent is who has lent and borrowed how much. A borrower uses first what nobody is guaranteed; what is beyond that, the
// least critical of those who have it have lent.
func (l *ledger) lent() loans {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := loans{l.total, map[*account]loan{}}
	lent := -l.total
	for _, a := range l.accounts {
		e := loan{held: held(a.word.Load()), guaranteed: a.guaranteed, lendable: a.lendable, max: a.max}
		e.borrowed = max(0, e.held-e.guaranteed)
		lent += e.guaranteed + e.borrowed
		out.of[a] = e
	}
	for i := len(l.accounts) - 1; i >= 0 && lent > 0; i-- {
		a := l.accounts[i]
		e := out.of[a]
		e.lent = min(lent, max(0, e.guaranteed-e.held))
		lent -= e.lent
		out.of[a] = e
	}
	return out
}

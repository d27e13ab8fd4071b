// SPDX-License-Identifier: Apache-2.0

// Snapshots: the state and the counters of a set.

package bulkhead

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// Snapshot is a consistent state of a set. Its counters never fall. Durations are nanoseconds in JSON.
type Snapshot struct {
	Revision uint64 `json:"revision"` // of the plan, from 1
	Total    int    `json:"total"`    // of the plan
	// ResizedBy is who made the plan, Plan.By, and ResizedAt when; zero until the first Resize.
	ResizedBy string    `json:"resized_by,omitempty"`
	ResizedAt time.Time `json:"resized_at,omitzero"`
	// EffectiveTotal is Total under the applied decision.
	EffectiveTotal int `json:"effective_total"`
	InFlight       int `json:"in_flight"`
	// Decision was applied last; nil: none. It is shared: do not modify it.
	Decision *decision.ControlDecision `json:"decision,omitempty"`
	// Stale is true if Decision has outlived its ValidFor, so that its Stale decision is in force.
	Stale bool `json:"stale,omitempty"`
	// Proposal is a plan for [Set.Resize]; nil: none (B15). It is shared: do not modify it.
	Proposal *Proposal `json:"proposal,omitempty"`
	// Unknown counts calls of unknown compartments.
	Unknown uint64 `json:"unknown"`
	// ObserverPanics counts recovered panics of the Observer, of a context, of a Breaker's State, or of Tenants.Weight.
	ObserverPanics uint64                `json:"observer_panics"`
	Compartments   []CompartmentSnapshot `json:"compartments"` // in the order of Config
}

// CompartmentSnapshot is the state of one compartment, its tenants included.
//
// The values of Outcomes add up to Finished + Abandoned. While no call is between its grant and its function, Submitted =
// Admitted + all of Rejected + all of Left + Queued, and Admitted = Finished + InFlight.
type CompartmentSnapshot struct {
	// Share is that by the plan, and Effective that under the applied decision.
	Share
	Effective Share `json:"effective"`

	Criticality decision.Priority `json:"criticality"`
	InFlight    int               `json:"in_flight"`
	// OldestRunning is how long the oldest running function has run, at least (B16); 0: none runs, or was seen to run. Functions
	// whose caller has left count.
	OldestRunning time.Duration `json:"oldest_running"`
	WithoutSlot   int           `json:"without_slot"` // of these, without a slot: they started while Mode was not Enforce
	Queued        int           `json:"queued"`

	// Lent is the number of guaranteed slots that others use, Borrowed the number of slots used beyond the guarantee.
	Lent     int `json:"lent"`
	Borrowed int `json:"borrowed"`

	Submitted uint64            `json:"submitted"` // calls
	Admitted  uint64            `json:"admitted"`  // functions called
	Finished  uint64            `json:"finished"`  // functions returned
	Outcomes  map[string]uint64 `json:"outcomes"`  // callers answered, by Outcome
	Rejected  map[string]uint64 `json:"rejected"`  // on arrival, by reason
	Left      map[string]uint64 `json:"left"`      // while waiting, or too late to start, by reason

	// WouldReject counts calls that a dry run started although Enforce would have rejected them, by reason. They count as
	// Admitted, unless their breaker or the end of their context stopped them.
	WouldReject map[string]uint64 `json:"would_reject"`

	// RejectionRate is the share of rejections, for any reason but cancellation and reentry, among the calls that were rejected
	// or have returned in the last minute, 0 to 1.
	RejectionRate float64 `json:"rejection_rate"`
	// Execution describes the running times of functions that returned in the last minute.
	Execution Execution `json:"execution"`

	Abandoned      int    `json:"abandoned"`       // functions running now whose caller has left
	AbandonedTotal uint64 `json:"abandoned_total"` // callers that left before their function returned
	LatePanics     uint64 `json:"late_panics"`     // of abandoned functions, recovered

	Degraded          uint64 `json:"degraded"`         // answered by a fallback
	FallbacksFailed   uint64 `json:"fallbacks_failed"` // with an error or a panic
	FallbacksRejected uint64 `json:"fallbacks_rejected"`
	FallbacksInFlight int    `json:"fallbacks_in_flight"`

	Tenants *TenantsSnapshot `json:"tenants,omitempty"` // nil: no tenants
	// Unhealthy says why a critical compartment is unhealthy; "": it is healthy, or not critical.
	Unhealthy string `json:"unhealthy,omitempty"`
}

// Execution describes execution times. All fields are 0 while Count is.
type Execution struct {
	Count uint64        `json:"count"`
	Mean  time.Duration `json:"mean"`
	P50   time.Duration `json:"p50"`
	P90   time.Duration `json:"p90"`
	P99   time.Duration `json:"p99"`
}

// TenantsSnapshot summarizes the tenants of a compartment.
type TenantsSnapshot struct {
	Keys     int    `json:"keys"`       // tracked now
	MaxKeys  int    `json:"max_keys"`   // limit of Keys
	Active   int    `json:"active"`     // of these, with waiting or running calls
	Max      int    `json:"max"`        // slots of one tenant
	Evicted  uint64 `json:"evicted"`    // idle tenants evicted
	Overflow uint64 `json:"overflowed"` // lookups that returned a shared compartment
}

// Snapshot returns a consistent state of the set. It may wait microseconds for a mutex. It allocates.
func (s *Set) Snapshot() Snapshot {
	if !s.valid() {
		return Snapshot{}
	}
	s.review()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	out := Snapshot{
		Revision: s.plan.Revision, Total: s.plan.Total, ResizedBy: s.plan.By, ResizedAt: s.resizedAt, EffectiveTotal: s.total,
		InFlight: s.held,
		Decision: s.decided, Stale: s.decisionState == decision.Stale, Unknown: s.unknown, ObserverPanics: s.panics,
		Proposal: s.proposal,
	}
	loans := s.loansLocked()
	for _, p := range s.pools {
		out.Compartments = append(out.Compartments, p.snapshotLocked(now, loans[p]))
		out.InFlight += p.withoutSlot
	}
	return out
}

// Snapshot returns the state of the compartment, for a tenant that of its compartment; zero if unknown.
func (c *Compartment) Snapshot() CompartmentSnapshot {
	if !c.exists() {
		return CompartmentSnapshot{}
	}
	s := c.pool.set
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.pool.snapshotLocked(s.clock(), s.loansLocked()[c.pool])
}

// snapshotLocked returns the state of p.
func (p *pool) snapshotLocked(now time.Duration, l loan) CompartmentSnapshot {
	n := &p.counts
	p.cohorts.look(now)
	c := CompartmentSnapshot{
		OldestRunning: p.cohorts.oldest(now),
		Share:         p.planned, Effective: p.share, Criticality: p.config.Criticality,
		InFlight: p.held + p.withoutSlot, WithoutSlot: p.withoutSlot, Queued: p.self.queue.Len(),
		Lent: l.lent, Borrowed: l.borrowed,
		Submitted: n.submitted, Admitted: n.admitted, Finished: n.finished,
		Outcomes: map[string]uint64{}, Rejected: map[string]uint64{}, Left: map[string]uint64{}, WouldReject: map[string]uint64{},
		Abandoned: n.abandonedNow, AbandonedTotal: n.abandoned, LatePanics: n.latePanics,
		Degraded: n.degraded, FallbacksFailed: n.fallbacksFailed, FallbacksRejected: n.fallbacksRejected,
		FallbacksInFlight: n.fallbacks,
	}
	for out, n := range n.outcomes {
		if n > 0 {
			c.Outcomes[string(answers[out])] = n
		}
	}
	for r, n := range n.rejectedFor {
		if left(r) {
			c.Left[string(r)] = n
		} else {
			c.Rejected[string(r)] = n
		}
	}
	for r, n := range n.wouldReject {
		c.WouldReject[string(r)] = n
	}
	c.RejectionRate, c.Execution = p.window.read(now, n)
	c.Unhealthy = c.unhealthy()
	if ts := p.tenants; ts != nil {
		c.Tenants = &TenantsSnapshot{
			Keys: ts.Len(), MaxKeys: p.config.Tenants.Keys, Active: ts.Active, Max: p.config.Tenants.Max,
			Evicted: ts.Evicted, Overflow: ts.Overflow,
		}
		for _, t := range p.waiting {
			if t != &p.self {
				c.Queued += t.queue.Len()
			}
		}
	}
	return c
}

// Recent returns the explanations of the last rejected and delayed calls of all compartments, 128 of each at most for one,
// oldest first; a breaker's rejections and reentries are not kept. Limiter is the name of the compartment, Task.Name the key of
// the tenant, if any. It allocates.
func (s *Set) Recent() []decision.Explanation {
	if !s.valid() {
		return nil
	}
	var all []decision.Explanation
	for _, p := range s.pools {
		all = append(append(all, p.rejections.All()...), p.delayed.All()...)
	}
	slices.SortStableFunc(all, func(a, b decision.Explanation) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	return all
}

// tooMany is the rejection rate above which a critical compartment is unhealthy.
const tooMany = 0.05

func (c *CompartmentSnapshot) unhealthy() string {
	if c.Criticality < decision.Critical || c.RejectionRate <= tooMany {
		return ""
	}
	return fmt.Sprintf("critical, and rejected %.1f %% of the calls of the last minute; allowed: 5 %%", 100*c.RejectionRate)
}

// SPDX-License-Identifier: Apache-2.0

// Proposals: a plan that gives the slots that nobody used to compartments that lack some again and again. Nothing applies it.

package bulkhead

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// Proposal is a plan that gives slots that nobody used in the last two windows, each of a minute or more, to compartments that
// lacked some in both (B15). It changes nothing: pass Plan to [Set.Resize].
type Proposal struct {
	// Plan is made from the revision in force. It has the same Total.
	Plan Plan `json:"plan"`
	// Reasons has a sentence for each compartment whose share changes, with its numbers.
	Reasons []string `json:"reasons"`
}

const (
	reviewed = time.Minute // the least length of a window of demand
	twice    = 2           // windows in a row in which a compartment lacks slots
	notice   = 20          // one call in so many is rejected by a compartment that lacks slots
)

// demand is what a compartment used and lacked since the last review, guarded by Set.mu.
type demand struct {
	peak, before      int    // the most slots held in this window, and in the one before
	submitted, lacked uint64 // the counters when it began
	again             int    // windows in a row, until it, in which the compartment lacked slots
}

// most returns the most slots held in both windows.
func (d *demand) most() int { return max(d.peak, d.before) }

// lacked counts the rejections for want of a slot. The caller holds Set.mu.
func (n *counts) lacked() uint64 {
	return n.rejectedFor[decision.QueueOverflow] + n.rejectedFor[TimeoutQueued] + n.rejectedFor[decision.MaxWaitExceeded]
}

// restartLocked forgets the demand of the past: it was that under another plan, or under a decision that withheld slots.
func (s *Set) restartLocked(now time.Duration) {
	s.proposal, s.before = nil, 0
	for _, p := range s.pools {
		p.demand = demand{}
	}
	s.openLocked(now)
}

// openLocked begins a window.
func (s *Set) openLocked(now time.Duration) {
	s.due.Store(int64(now + reviewed))
	s.opened, s.peak = now, s.held
	for _, p := range s.pools {
		d := &p.demand
		d.peak, d.submitted, d.lacked = p.held, p.counts.submitted, p.counts.lacked()
	}
}

// review makes a proposal once a minute, when a call is rejected or somebody looks, and tells the observer of a new one.
func (s *Set) review() {
	now := s.clock()
	if int64(now) < s.due.Load() {
		return
	}
	if p := s.renew(now); p != nil {
		s.observe(Event{Kind: Proposed, Revision: p.Plan.Revision, Proposal: p})
	}
}

// renew ends the window, if it is long enough, and returns the proposal, unless it is the last one again.
func (s *Set) renew(now time.Duration) *Proposal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int64(now) < s.due.Load() { // another call was faster
		return nil
	}
	last := s.proposal
	s.proposal = s.proposeLocked(now)
	s.before = s.peak
	for _, p := range s.pools {
		p.demand.before = p.demand.peak
	}
	s.openLocked(now)
	if s.proposal == nil || last != nil && slices.Equal(last.Plan.Compartments, s.proposal.Plan.Compartments) {
		return nil
	}
	return s.proposal
}

// proposeLocked judges the window that ends now; nil: nobody lacks slots, or none was idle all the time.
func (s *Set) proposeLocked(now time.Duration) *Proposal {
	next := s.plan
	next.Compartments = slices.Clone(next.Compartments)
	idle, free := max(0, s.plan.Total-max(s.peak, s.before)), s.plan.Total
	for i, p := range s.pools {
		free -= s.plan.Compartments[i].Guaranteed
		p.demand.again++
		if !p.lacksLocked() {
			p.demand.again = 0
		}
	}
	share := func(p *pool) *Share { return &next.Compartments[slices.Index(s.pools, p)] }
	for _, p := range s.ranked {
		if p.demand.again < twice {
			continue
		}
		want := int(min(float64(idle), max(1, math.Ceil(p.needsLocked()/float64(now-s.opened)))))
		got := min(want, free)
		free -= got
		for _, donor := range slices.Backward(s.ranked) {
			from := share(donor)
			n := min(want-got, donor.spareLocked(from, p))
			from.Guaranteed -= n
			from.Lendable = min(from.Lendable, from.Guaranteed)
			got += n
		}
		if got == 0 {
			continue
		}
		to := share(p)
		to.Guaranteed += got
		to.Max = max(to.Max, to.Guaranteed, min(next.Total, p.demand.most()+got))
		idle -= got
	}
	var reasons []string
	for i, p := range s.pools {
		if why := p.reasonLocked(next.Compartments[i].Guaranteed); why != "" {
			reasons = append(reasons, why)
		}
	}
	if reasons == nil {
		return nil
	}
	return &Proposal{next, reasons}
}

// needsLocked returns the slot time, in nanoseconds, that the calls would have taken that were rejected in this window.
func (p *pool) needsLocked() float64 {
	return float64(p.counts.lacked()-p.demand.lacked) * float64(p.window.usual)
}

// reasonLocked says why p should be guaranteed so many slots; "": as it is now.
func (p *pool) reasonLocked(guaranteed int) string {
	d, n := &p.demand, guaranteed-p.planned.Guaranteed
	switch {
	case n > 0:
		return fmt.Sprintf("%q rejected %d of %d calls for want of a slot, and did so in the minutes before: %d more",
			p.config.Name, p.counts.lacked()-d.lacked, p.counts.submitted-d.submitted, n)
	case n < 0:
		return fmt.Sprintf("%q used at most %d of its %d guaranteed slots: %d fewer", p.config.Name, d.most(), p.planned.Guaranteed, -n)
	}
	return ""
}

// lacksLocked reports whether p rejected more than one call in twenty of this window for want of a slot, with all in use that it
// is guaranteed, or that its tenants may share.
func (p *pool) lacksLocked() bool {
	d, all := &p.demand, p.planned.Guaranteed
	if p.tenants != nil {
		all = p.planned.Max
	}
	return d.peak >= all && notice*(p.counts.lacked()-d.lacked) > p.counts.submitted-d.submitted
}

// spareLocked returns how many slots of sh, p's part of the next plan, p can do without for the sake of another compartment,
// which is no less critical. It keeps one.
func (p *pool) spareLocked(sh *Share, other *pool) int {
	if p.demand.again > 0 || sh.Mode != decision.Enforce || p.config.Criticality > other.config.Criticality {
		return 0
	}
	return max(0, sh.Guaranteed-max(1, p.demand.most()))
}

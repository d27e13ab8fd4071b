// SPDX-License-Identifier: Apache-2.0

// The counters of a compartment with its tenants. Set.mu guards them, and each is updated in the step that decides, so none
// ever falls.

package bulkhead

import (
	"slices"

	"github.com/stopbank/stopbank/warden/decision"
)

// The reasons that compartments alone have; the others are those of package decision.
const (
	// TimeoutQueued: the call waited for the compartment's MaxWait, or for its Timeout if MaxWait is not set.
	TimeoutQueued decision.RejectionReason = "timeout_queued"
	// BreakerOpen: the compartment's circuit breaker rejected the call.
	BreakerOpen decision.RejectionReason = "breaker_open"
)

// The bounds of a compartment.
const (
	BoundSlots  decision.Bound = "own_slots"    // the guaranteed slots are taken, and it may not borrow
	BoundBorrow decision.Bound = "borrow_limit" // it has borrowed its maximum
	BoundTenant decision.Bound = "tenant_limit" // the tenant has its maximum of slots
	BoundTotal  decision.Bound = "total"        // all slots of the set are taken, or reserved for other compartments
)

// The sources of a deadline that a compartment sets.
const (
	fromMaxWait decision.DeadlineSource = "max_wait" // MaxWait
	fromTimeout decision.DeadlineSource = "timeout"  // Timeout, which bounds the wait if MaxWait is not set
)

// left reports whether a rejection for this reason counts as leaving (the call had waited or was late) rather than as
// rejected on arrival.
func left(r decision.RejectionReason) bool {
	switch r {
	case decision.MaxWaitExceeded, decision.DeadlineExceeded, TimeoutQueued, decision.Canceled, decision.PriorityDrop,
		decision.Closed:
		return true
	}
	return false
}

type counts struct {
	submitted, admitted, finished                uint64
	outcomes                                     [len(answers)]uint64
	rejectedFor, wouldReject                     map[decision.RejectionReason]uint64 // made with the pool
	rejected                                     uint64                              // for any reason but Canceled and Reentry
	abandoned, latePanics                        uint64
	degraded, fallbacksFailed, fallbacksRejected uint64
	abandonedNow, fallbacks                      int
}

// countAnswer counts the outcome of a function that was called. The caller holds Set.mu.
func (n *counts) countAnswer(out decision.Outcome) { n.outcomes[slices.Index(answers[:], out)]++ }

// countRejectionLocked counts the rejection of a submitted call.
func (p *pool) countRejectionLocked(why decision.RejectionReason) {
	p.counts.rejectedFor[why]++
	if why != decision.Canceled && why != decision.Reentry {
		now := p.set.clock()
		p.window.at(now, &p.counts)
		p.cohorts.look(now)
		p.counts.rejected++
	}
}

// countEarlyRejection counts a call that is rejected before it has asked for a slot.
func (p *pool) countEarlyRejection(why decision.RejectionReason) {
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	p.counts.submitted++
	p.countRejectionLocked(why)
}

// arrivals returns the number of calls so far.
func (s *Set) arrivals() (n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pools {
		n += p.counts.submitted
	}
	return n
}

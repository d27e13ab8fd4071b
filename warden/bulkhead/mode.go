// SPDX-License-Identifier: Apache-2.0

// Modes, the safety valves of a compartment: calls that start without a free slot, and what Enforce would have done with
// them.

package bulkhead

import (
	"math"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/queue"
)

// While a compartment does not enforce its bounds, a call takes a slot if one is free, and otherwise starts without one: it
// runs beyond the slots and takes none from the others. When a call ends, one that runs beyond takes over its slot.

// admitsLocked reports whether a call of c may start at once.
func (s *Set) admitsLocked(c *Compartment) bool {
	return c.pool.share.Mode != decision.Enforce || s.freeLocked(c)
}

// enterLocked takes a slot for c, or starts a call beyond the slots.
func (s *Set) enterLocked(c *Compartment) {
	if s.freeLocked(c) {
		s.takeLocked(c)
		return
	}
	c.withoutSlot++
	c.pool.withoutSlot++
	c.countLocked()
}

// boundedLocked returns the number of running calls that count toward the bounds of c, and of p: under Enforce, calls that still
// run beyond the slots count too.
func (c *Compartment) boundedLocked() int {
	if c.pool.share.Mode != decision.Enforce {
		return c.held
	}
	return c.held + c.withoutSlot
}

func (p *pool) boundedLocked() int {
	if p.share.Mode != decision.Enforce {
		return p.held
	}
	return p.held + p.withoutSlot
}

// startWithoutSlotLocked starts a call without a free slot, and in a dry run records in o whether Enforce would have rejected it.
func (c *Compartment) startWithoutSlotLocked(o *outcome, d deadline, now time.Duration, draw float64) decision.RejectionReason {
	p := c.pool
	o.queued = max(0, c.withoutSlot-c.unwanted)
	if p.share.Mode == decision.DryRun {
		if o.would = named(c.evaluateLocked(o.queued, d, now, draw), d.from); o.would != "" {
			o.bound, o.limit = p.set.fullLocked(c)
			c.unwanted++
			p.counts.wouldReject[o.would]++
		}
	}
	p.set.enterLocked(c)
	o.inFlight = c.held + c.withoutSlot
	return o.would
}

// evaluateLocked estimates why Enforce would reject a call without a free slot; 0: it would get one in time. In this model the
// calls beyond the slots that Enforce would have accepted are the queue, and Little's law with the usual execution time gives the
// queue wait.
func (c *Compartment) evaluateLocked(queued int, d deadline, now time.Duration, draw float64) decision.RejectionReason {
	p := c.pool
	if c.queue.Limit == 0 {
		return decision.QueueOverflow
	}
	if v := c.queue.Evaluate(int8(p.config.Criticality), queued, now, p.waitingRuleLocked(), draw); v != queue.Waits {
		return v.Reason()
	}
	wait := float64(p.window.usual) * float64(queued+1) / float64(max(1, p.share.Max))
	if queue.Missed(d.due, now, time.Duration(math.Min(wait, float64(queue.Never/2)))) {
		return decision.DeadlineExceeded
	}
	return ""
}

// named returns TimeoutQueued for a call that leaves the queue because of MaxWait or Timeout, rather than because of its own
// deadline.
func named(why decision.RejectionReason, from decision.DeadlineSource) decision.RejectionReason {
	if why == decision.DeadlineExceeded && (from == fromMaxWait || from == fromTimeout) {
		return TimeoutQueued
	}
	return why
}

// giveBackLocked ends what a call holds: a slot, or a run beyond the slots.
func (k *call) giveBackLocked() {
	if k.would != "" {
		k.c.unwanted--
	}
	k.pool.set.giveLocked(k.c)
}

// A valve is a compartment and its new mode.
type modeChange struct {
	compartment string
	mode        decision.Mode
}

// modeChanges returns the compartments whose mode differs.
func modeChanges(before, after []Share) (all []modeChange) {
	for i, sh := range after {
		if before[i].Mode != sh.Mode {
			all = append(all, modeChange{sh.Name, sh.Mode})
		}
	}
	return all
}

func (s *Set) observeModes(all []modeChange) {
	for _, v := range all {
		s.observe(Event{Kind: ModeChanged, Explanation: decision.Explanation{Limiter: v.compartment, Mode: v.mode}})
	}
}

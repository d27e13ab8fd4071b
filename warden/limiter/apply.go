// SPDX-License-Identifier: Apache-2.0

// The decision in force: the last one applied, or its Stale decision once it was not renewed in time.

package limiter

import (
	"math"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/queue"
)

// rule is a decision in force under a mode. It is immutable.
type rule struct {
	decision      *decision.ControlDecision
	decisionState decision.DecisionState
	mode          decision.Mode
	slots         int           // how many tasks may run
	yields        int           // how often a granted task yields before it starts
	until         time.Duration // the last valid instant
}

func newRule(d *decision.ControlDecision, decisionState decision.DecisionState, m decision.Mode, until time.Duration) *rule {
	if m != decision.Enforce {
		return &rule{d, decisionState, m, math.MaxInt, 0, until}
	}
	return &rule{d, decisionState, m, d.TargetConcurrency, d.Yields, until}
}

// due returns the deadline that is enforced: none unless the mode is Enforce.
func (r *rule) due(d deadline) time.Duration {
	if r.mode != decision.Enforce {
		return queue.Never
	}
	return d.due
}

// expected returns the expected execution time: 0 unless the mode is Enforce.
func (r *rule) expected() time.Duration {
	if r.mode != decision.Enforce {
		return 0
	}
	return r.decision.Expected
}

// needs returns what a task that waits must have left before its deadline, by its name: nothing unless the mode is Enforce.
func (r *rule) needs() map[string]time.Duration {
	if r.mode != decision.Enforce {
		return nil
	}
	return r.decision.Needs
}

// queue returns the part of the rule that the queue follows.
func (r *rule) queue() queue.Rule {
	return queue.Rule{
		Expected: r.expected(), Burst: r.decision.Burst, MaxWait: r.decision.MaxWait, Needs: r.needs(),
		Share: r.decision.ShedProbability,
	}
}

// Apply puts d in force, unless its Seq is less than that of the decision applied last. It copies d and clamps each field to
// its range, see [decision.ControlDecision.Sanitized]. A higher limit starts waiting tasks at once; a lower one interrupts
// nothing, and the number in flight shrinks as tasks end. On a nil or zero Limiter, Apply does nothing. It does not block and
// allocates the copy.
func (l *Limiter) Apply(d decision.ControlDecision) {
	if !l.valid() {
		return
	}
	d = d.Sanitized()
	l.mu.Lock()
	defer l.mu.Unlock()
	if d.Seq < l.seq {
		return
	}
	l.adoptLocked(d, decision.Applied, l.rule.mode)
	l.serveLocked()
	l.queue.Bound(l.clock(), l.queueLocked())
}

// adoptLocked puts d, which it owns, in force.
func (l *Limiter) adoptLocked(d decision.ControlDecision, decisionState decision.DecisionState, m decision.Mode) {
	l.seq = d.Seq
	l.rule = newRule(&d, decisionState, m, queue.Never)
	if l.expiry != nil {
		l.expiry.Stop()
	}
	if now := l.clock(); d.ValidFor > 0 && d.ValidFor < queue.Never-now {
		l.rule.until = now + d.ValidFor
		if l.expiry == nil {
			l.expiry = time.AfterFunc(d.ValidFor+1, l.expire)
		} else {
			l.expiry.Reset(d.ValidFor + 1)
		}
	}
}

func (l *Limiter) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refreshLocked(l.clock())
}

// refreshLocked replaces an expired decision by its Stale decision. The timer calls it, but timers run late under overload, so
// every path that has read the clock calls it too. No serve has to follow: the stale limit is not higher.
func (l *Limiter) refreshLocked(now time.Duration) {
	if now <= l.rule.until {
		return
	}
	d := l.rule.decision
	if d.Stale != nil {
		d = d.Stale
	}
	l.rule = newRule(d, decision.Stale, l.rule.mode, queue.Never)
}

// Close rejects all waiting and all later tasks with reason Closed, or that of their context or deadline if that has ended
// before. Running tasks continue and release their permits as usual. Closing twice, or closing a nil or zero Limiter, does
// nothing. Close does not block.
func (l *Limiter) Close() {
	if !l.valid() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed, l.direct = true, false
	now := l.clock()
	for w := l.queue.LongestWaiting(); w != nil; w = l.queue.LongestWaiting() {
		l.queue.Remove(w)
		w.Outcome, w.Share = l.countRejectionLocked(decision.Priority(w.Priority), queue.Closed, now-w.Since, now), l.shareLocked(w.Tenant)
		l.settleLocked(w.Tenant)
		w.Wake()
	}
}

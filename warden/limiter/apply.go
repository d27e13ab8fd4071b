// What rules: the decision that was applied last, or its Stale decision once it has not been renewed in time.

package limiter

import (
	"math"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/queue"
)

// rule is a decision in force, and whether it is enforced. It never changes.
type rule struct {
	decision *decision.ControlDecision
	standing Standing
	mode     Mode
	places   int           // how many tasks may hold one
	yields   int           // how often one that has its place lets others come first
	until    time.Duration // the last instant at which it is valid
}

func newRule(d *decision.ControlDecision, standing Standing, m Mode, until time.Duration) *rule {
	if m != Enforce {
		return &rule{d, standing, m, math.MaxInt, 0, until}
	}
	return &rule{d, standing, m, d.TargetConcurrency, d.Yields, until}
}

// due is the deadline by which a task may be refused.
func (r *rule) due(d deadline) time.Duration {
	if r.mode != Enforce {
		return queue.Never
	}
	return d.due
}

// expected is what of its deadline a task must have left.
func (r *rule) expected() time.Duration {
	if r.mode != Enforce {
		return 0
	}
	return r.decision.Expected
}

// queue is what the queue needs to know of it.
func (r *rule) queue() queue.Rule {
	return queue.Rule{Expected: r.expected(), Burst: r.decision.Burst, Share: r.decision.ShedProbability}
}

// Apply makes d the decision that rules, unless its Seq is less than that of the one applied last. It copies d, and
// moves what is out of range to the end of its range, as [decision.ControlDecision.Sanitized] says. A higher
// target lets waiters start at once; a lower one interrupts nothing, the number in flight shrinks as tasks end. On
// a nil or zero Limiter it does nothing. It does not block; it allocates what the copy takes.
func (l *Limiter) Apply(d decision.ControlDecision) {
	if !l.made() {
		return
	}
	d = d.Sanitized()
	l.mu.Lock()
	defer l.mu.Unlock()
	if d.Seq < l.seq {
		return
	}
	l.adopt(d, Applied, l.rule.mode)
	l.serve()
}

// adopt makes d, which nobody else can change, the decision that rules. The caller holds mu.
func (l *Limiter) adopt(d decision.ControlDecision, standing Standing, m Mode) {
	l.seq = d.Seq
	l.rule = newRule(&d, standing, m, queue.Never)
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
	l.refresh(l.clock())
}

// refresh puts the Stale decision in force if what rules has expired. The timer calls it; and because a timer may be late just
// when it matters, so does whoever has read the clock for a purpose of its own. Nobody needs to be served afterwards: the
// target is no higher. The caller holds mu.
func (l *Limiter) refresh(now time.Duration) {
	if now <= l.rule.until {
		return
	}
	d := l.rule.decision
	if d.Stale != nil {
		d = d.Stale
	}
	l.rule = newRule(d, Stale, l.rule.mode, queue.Never)
}

// Close refuses all that waits and all that comes later, as Closed. What runs goes on, and its permits are released as
// ever. Closing again, or closing a nil or zero Limiter, changes nothing. Close does not block.
func (l *Limiter) Close() {
	if !l.made() {
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
		l.queue.Remove(w, queue.Waits, now)
		w.Outcome = l.refused(Priority(w.Priority), Closed, now-w.Since)
		w.Wake()
	}
}

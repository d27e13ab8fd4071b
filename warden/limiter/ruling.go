// What rules: the decision that was applied last, or its Stale decision once it has not been renewed in time.

package limiter

import (
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// ruling is a decision with what the limiter needs to know about it. It never changes.
type ruling struct {
	decision   *decision.ControlDecision
	standing   Standing
	generation uint16 // repeated in the state word
	yields     int
	expected   time.Duration
	until      time.Duration // the last instant at which it is valid
}

// Apply makes d the decision that rules, unless its Seq is less than that of the one applied last. It copies d, and
// moves what is out of range to the end of its range, as [decision.ControlDecision.Sanitized] says. A higher
// target lets waiters start at once; a lower one interrupts nothing, the number in flight shrinks as tasks end. On
// the zero Limiter it does nothing. It does not block; it allocates what the copy takes.
func (l *Limiter) Apply(d decision.ControlDecision) {
	d = d.Sanitized()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ruling.Load() == nil || d.Seq < l.seq {
		return
	}
	l.adopt(d, Applied)
	l.serve()
}

// adopt makes d, which nobody else can change, the decision that rules. The caller holds mu.
func (l *Limiter) adopt(d decision.ControlDecision, standing Standing) {
	l.seq = d.Seq
	l.install(&d, standing)
	switch {
	case l.ruling.Load().until == never:
		if l.expiry != nil {
			l.expiry.Stop()
		}
	case l.expiry == nil:
		l.expiry = time.AfterFunc(d.ValidFor+1, func() { l.expire() })
	default:
		l.expiry.Reset(d.ValidFor + 1)
	}
}

func (l *Limiter) install(d *decision.ControlDecision, standing Standing) {
	r := &ruling{decision: d, standing: standing, yields: d.Yields, expected: d.Expected, until: never}
	if now := l.clock(); standing != Stale && d.ValidFor > 0 && d.ValidFor < never-now {
		r.until = now + d.ValidFor
	}
	if old := l.ruling.Load(); old != nil {
		r.generation = old.generation + 1
	}
	l.ruling.Store(r)
	l.rule(d.TargetConcurrency, r.generation)
}

// expire puts the Stale decision in place if what rules has expired, and returns what rules then. The timer calls it; and
// because a timer may be late just when it matters, so does every call that has read the clock for its own purposes.
func (l *Limiter) expire() *ruling {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refresh(l.clock())
	return l.ruling.Load()
}

// refresh is expire for a caller who holds mu. Nobody needs to be served afterwards: the target is no higher.
func (l *Limiter) refresh(now time.Duration) {
	r := l.ruling.Load()
	if r == nil || now <= r.until {
		return
	}
	d := r.decision
	if d.Stale != nil {
		d = d.Stale
	}
	l.install(d, Stale)
}

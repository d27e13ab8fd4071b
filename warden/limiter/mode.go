// Modes, the limiter's safety valves: enforce decisions, only report them, or let everything pass.

package limiter

import (
	"fmt"
	"time"

	"github.com/stopbank/stopbank/warden/internal/queue"
)

// Mode says whether a limiter enforces its decisions. Config.Mode sets it first, and [Limiter.SetMode] changes it.
type Mode uint8 //nolint:recvcheck // UnmarshalText alone changes it

// The modes. In DryRun and Bypass every task starts at once, unless its context has ended or the limiter is closed.
const (
	Enforce Mode = iota // tasks start, wait and are rejected as the decision says
	DryRun              // every task starts; Explanation.WouldReject says which ones Enforce would reject (Q17)
	Bypass              // every task starts, without evaluation (Q18)
	modes
)

const validModes = "Enforce, DryRun or Bypass"

// String returns the code: "enforce", "dry_run" or "bypass".
func (m Mode) String() string { return nameOf("Mode", uint8(m), "enforce", "dry_run", "bypass") }

// MarshalText returns the mode's code. The error is an [*InvalidError].
func (m Mode) MarshalText() ([]byte, error) {
	if m >= modes {
		return nil, invalidField("Mode", uint8(m), validModes)
	}
	return []byte(m.String()), nil
}

// UnmarshalText accepts exactly the codes that String returns. The error is an [*InvalidError]; the mode is unchanged then.
func (m *Mode) UnmarshalText(text []byte) error {
	for is := range modes {
		if string(text) == is.String() {
			*m = is
			return nil
		}
	}
	return invalidField("Mode", fmt.Sprintf("%.40q", text), "enforce, dry_run or bypass")
}

// SetMode changes the mode for later tasks. Tasks that wait when the limiter stops enforcing start at once. After a change
// back to Enforce, more tasks may be in flight than the limit: nothing is interrupted, and no task starts until enough have
// ended. The observer receives an event of Outcome ModeChanged. The error, an [*InvalidError], is for an unknown mode, or a
// nil or zero Limiter. SetMode does not block; it allocates.
func (l *Limiter) SetMode(m Mode) error {
	switch {
	case !l.made():
		return notMade()
	case m >= modes:
		return invalidField("mode", uint8(m), validModes)
	}
	if l.change(m) {
		l.observeMode()
	}
	return nil
}

func (l *Limiter) change(m Mode) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rule.mode == m {
		return false
	}
	l.enter(m)
	l.serve()
	return true
}

// Mode returns the mode in force; Enforce for a nil or zero Limiter. It does not block.
func (l *Limiter) Mode() Mode {
	if !l.made() {
		return Enforce
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rule.mode
}

// enter puts a mode in force. The caller holds mu, as for all functions below, and calls serve afterwards.
func (l *Limiter) enter(m Mode) {
	l.rule = newRule(l.rule.decision, l.rule.decisionState, m, l.rule.until)
	l.direct = !l.closed && m != DryRun
	l.lastFree = l.clock()
}

// startDryRun starts a task in a dry run and records whether Enforce would have rejected it.
func (l *Limiter) startDryRun(t Task, due, now time.Duration, mayWait bool, draw float64) outcome {
	queued := max(0, l.running-l.unwanted-l.rule.decision.TargetConcurrency)
	why := l.evaluate(t, due, now, mayWait, draw)
	o := l.grant(t.Priority)
	o.queued, o.would = int32(queued), why
	if why != 0 {
		cut, _ := l.queue.Cut(l.rule.decision.ShedProbability)
		o.cut = Priority(cut)
		l.unwanted++
		c := &l.classes[t.Priority.class()]
		c.WouldReject++
		c.wouldReject[why]++
	}
	return o
}

// evaluate estimates on arrival why Enforce would reject a task; 0: it would not. In this model the running tasks that Enforce
// would have accepted fill the slots of the limit, the rest of them are the queue, and Little's law gives the queue wait.
func (l *Limiter) evaluate(t Task, due, now time.Duration, mayWait bool, draw float64) Reason {
	d, accepted := l.rule.decision, l.running-l.unwanted
	queued := accepted - d.TargetConcurrency
	switch {
	case queue.Missed(due, now, 0):
		return DeadlineExceeded
	case queued < 0:
		l.lastFree = now
		return 0
	case d.TargetConcurrency == 0:
		return PressureHigh
	case !mayWait:
		return NoSlot
	case l.queue.Limit == 0:
		return QueueOverflow
	case !trial(draw) && queue.Missed(due, now, d.Needs[t.Name]):
		return DeadlineExceeded
	}
	if v := l.queue.Evaluate(int8(t.Priority), queued, now, l.rule.queue(), draw); v != queue.Waits {
		return reasonOf(v)
	}
	wait := float64(d.Expected) * float64(queued+1) / float64(d.TargetConcurrency)
	switch {
	case queue.Missed(due, now, time.Duration(min(float64(d.Expected)+wait, float64(queue.Never/2)))):
		return DeadlineExceeded
	case due == queue.Never && !t.Patient && t.Priority != Critical && l.overstays(wait, now):
		return MaxWaitExceeded
	}
	return 0
}

// overstays reports whether a task that would wait for so long, in nanoseconds, would have to leave: no slot has been free since
// lastFree.
func (l *Limiter) overstays(wait float64, now time.Duration) bool {
	r := l.rule.queue()
	r.Expected = l.rule.decision.Expected
	most := queue.MaxWait(now-l.lastFree, r)
	return most > 0 && now-l.lastFree > max(r.Burst, r.Expected) && wait > float64(most)
}

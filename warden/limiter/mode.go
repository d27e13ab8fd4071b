// SPDX-License-Identifier: Apache-2.0

// Modes, the limiter's safety valves: enforce decisions, only report them, or let everything pass.

package limiter

import (
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/queue"
)

const validModes = "Enforce, DryRun or Bypass"

// SetMode changes the mode for later tasks. Tasks that wait when the limiter stops enforcing start at once. After a change back
// to Enforce, more tasks may be in flight than the limit: nothing is interrupted, and no task starts until enough have ended.
// If m is another mode, the observer receives an event of Outcome ModeChanged. The error, an [*decision.InvalidError], is for
// an unknown mode, or a nil or zero Limiter. SetMode does not block; it allocates.
func (l *Limiter) SetMode(m decision.Mode) error {
	switch {
	case !l.valid():
		return errNotMade()
	case m > decision.Bypass:
		return invalidField("mode", uint8(m), validModes)
	}
	if l.change(m) {
		l.observeMode()
	}
	return nil
}

// Mode returns the mode in force; Enforce if l is nil or zero. It may wait microseconds for a mutex.
func (l *Limiter) Mode() decision.Mode {
	if !l.valid() {
		return decision.Enforce
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rule.mode
}

func (l *Limiter) change(m decision.Mode) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rule.mode == m {
		return false
	}
	l.enterLocked(m)
	l.serveLocked()
	return true
}

// enterLocked puts a mode in force. The caller calls serveLocked afterwards.
func (l *Limiter) enterLocked(m decision.Mode) {
	l.rule = newRule(l.rule.decision, l.rule.decisionState, m, l.rule.until)
	l.direct = !l.closed && m != decision.DryRun
	l.lastFree = l.clock()
}

// startDryRunLocked starts a task in a dry run and records whether Enforce would have rejected it.
func (l *Limiter) startDryRunLocked(t Task, of *queue.Tenant, due, now time.Duration, mayWait bool, draw float64) outcome {
	queued := max(0, l.running-l.unwanted-l.rule.decision.TargetConcurrency)
	why := l.evaluateLocked(t, due, now, mayWait, draw)
	o := l.grantLocked(t.Priority, of)
	o.queued, o.would = int32(queued), why
	if why != 0 {
		cut, _ := l.queue.Cut(l.rule.decision.ShedProbability)
		o.cut = decision.Priority(cut)
		l.unwanted++
		c := &l.classes[class(t.Priority)]
		c.WouldReject++
		c.wouldReject[why]++
	}
	return o
}

// evaluateLocked estimates on arrival why Enforce would reject a task; 0: it would not. In this model the running tasks that
// Enforce would have accepted fill the slots of the limit, the rest of them are the queue, and Little's law gives the queue wait.
func (l *Limiter) evaluateLocked(t Task, due, now time.Duration, mayWait bool, draw float64) queue.Result {
	d, accepted := l.rule.decision, l.running-l.unwanted
	queued := accepted - d.TargetConcurrency
	switch {
	case queue.Missed(due, now, 0):
		return queue.Late
	case queued < 0:
		l.lastFree = now
		return 0
	case d.TargetConcurrency == 0:
		return queue.Shed
	case !mayWait:
		return queue.NoSlot
	case l.queue.Limit == 0:
		return queue.Full
	case !trial(draw) && queue.Missed(due, now, d.Needs[t.Name]):
		return queue.Late
	}
	if v := l.queue.Evaluate(int8(t.Priority), queued, now, l.rule.queue(), draw); v != queue.Waits {
		return v
	}
	wait := float64(d.Expected) * float64(queued+1) / float64(d.TargetConcurrency)
	switch {
	case queue.Missed(due, now, time.Duration(min(float64(d.Expected)+wait, float64(queue.Never/2)))):
		return queue.Late
	case due == queue.Never && !t.Patient && t.Priority != decision.Critical && l.overstaysLocked(wait, now):
		return queue.Overstayed
	}
	return 0
}

// overstaysLocked reports whether a task that would wait for so long, in nanoseconds, would have to leave: no slot has been free
// since lastFree.
func (l *Limiter) overstaysLocked(wait float64, now time.Duration) bool {
	r := l.rule.queue()
	r.Expected = l.rule.decision.Expected
	most := r.Early()
	if now-l.lastFree > max(r.Burst, r.Expected) {
		most = queue.MaxWait(now-l.lastFree, r)
	}
	return most > 0 && wait > float64(most)
}

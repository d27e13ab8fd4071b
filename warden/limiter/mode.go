// This file is the safety valves: whether a limiter enforces what it decides, only says so, or keeps out of the way.

package limiter

import (
	"fmt"
	"time"

	"github.com/stopbank/stopbank/warden/internal/queue"
)

// Mode says whether a limiter enforces what it decides. It is Config.Mode to begin with, and [Limiter.SetMode] changes it.
type Mode uint8 //nolint:recvcheck // UnmarshalText alone changes it

// The modes. In DryRun and Bypass every task starts at once; only the end of its context and Close refuse one.
const (
	Enforce Mode = iota // tasks run, wait and are refused as the decision says
	DryRun              // each task is judged when it comes, and starts whatever the judgement: Explanation.WouldReject (Q17)
	Bypass              // nothing is judged (Q18)
	modes
)

const validModes = "Enforce, DryRun or Bypass"

// String is the mode's code: "enforce", "dry_run" or "bypass".
func (m Mode) String() string { return nameOf("Mode", uint8(m), "enforce", "dry_run", "bypass") }

// MarshalText is the mode's code. The error is an [*InvalidError].
func (m Mode) MarshalText() ([]byte, error) {
	if m >= modes {
		return nil, &InvalidError{"Mode", uint8(m), validModes}
	}
	return []byte(m.String()), nil
}

// UnmarshalText reads a mode's code, and nothing else. The error is an [*InvalidError]; the mode is unchanged then.
func (m *Mode) UnmarshalText(text []byte) error {
	for is := range modes {
		if string(text) == is.String() {
			*m = is
			return nil
		}
	}
	return &InvalidError{"Mode", fmt.Sprintf("%.40q", text), "enforce, dry_run or bypass"}
}

// SetMode changes the mode for whatever comes from now on. Tasks that wait when the limiter stops enforcing start at once.
// When it enforces again, more may be in flight than the target: nothing is interrupted, and nobody starts until enough have
// ended. The observer is told of a change by an event of Outcome ModeChanged. The error, an [*InvalidError], is for a mode
// that there is not, or a nil or zero Limiter. It does not block; it allocates.
func (l *Limiter) SetMode(m Mode) error {
	switch {
	case !l.made():
		return notMade()
	case m >= modes:
		return &InvalidError{"mode", uint8(m), validModes}
	}
	if l.change(m) {
		l.tellMode()
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

// Mode is the mode in force; that of a nil or zero Limiter is Enforce. It does not block.
func (l *Limiter) Mode() Mode {
	if !l.made() {
		return Enforce
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rule.mode
}

// enter puts a mode in force. The caller holds mu, as for all below, and serves those who wait.
func (l *Limiter) enter(m Mode) {
	l.rule = newRule(l.rule.decision, l.rule.standing, m, l.rule.until)
	l.direct = !l.closed && m != DryRun
}

// rehearse starts a task in a dry run, and notes what would have become of it.
func (l *Limiter) rehearse(p Priority, due, now time.Duration, mayWait bool, draw float64) outcome {
	queued := max(0, l.running-l.unwanted-l.rule.decision.TargetConcurrency)
	why := l.judge(p, due, now, mayWait, draw)
	o := l.grant(p)
	o.queued, o.would = queued, why
	if why != 0 {
		cut, _ := l.queue.Cut(l.rule.decision.ShedProbability)
		o.cut = Priority(cut)
		l.unwanted++
		c := &l.classes[p.class()]
		c.WouldReject++
		c.wouldReject[why]++
	}
	return o
}

// judge estimates whether a task would have been refused, when it comes: 0 if not. The tasks in flight that would not have been
// hold the places of the target, and those beyond it are the queue, which is worked off by Little's law.
func (l *Limiter) judge(p Priority, due, now time.Duration, mayWait bool, draw float64) Reason {
	d, accepted := l.rule.decision, l.running-l.unwanted
	queued := accepted - d.TargetConcurrency
	switch {
	case queue.Missed(due, now, d.Expected):
		return DeadlineExceeded
	case queued < 0:
		return 0
	case d.TargetConcurrency == 0:
		return PressureHigh
	case !mayWait || l.queue.Limit == 0:
		return QueueOverflow
	}
	if v := l.queue.Judge(int8(p), queued, now, l.rule.queue(), draw); v != queue.Waits {
		return reasonOf(v)
	}
	rounds := 1 + float64(queued+1)/float64(d.TargetConcurrency)
	if queue.Missed(due, now, time.Duration(min(rounds*float64(d.Expected), float64(queue.Never/2)))) {
		return DeadlineExceeded
	}
	return 0
}

// SPDX-License-Identifier: Apache-2.0

// Executions that their deadline or client ended: what they wait for may go on behind them, and only completions tell.

package control

import (
	"math"

	"github.com/stopbank/stopbank/warden/decision"
)

const (
	// A limit that was halved lets half of it complete if all was work, and all of it if nothing was: what lies between them
	// decides.
	fewer = 0.7

	// Executions from which a judgement is made: half as many differ from them by more than chance.
	enoughEnds = 32

	// A limit that was halved in vain stays for 1, 3, 7 and so on judgements, but no more than this: what is abandoned may
	// change.
	mostRest = 63
)

// ends are the executions of a while.
type ends struct {
	ended, gone float64 // executions that completed, and that were abandoned
	took        float64 // seconds of execution of those that were abandoned
	work, time  float64 // seconds of execution, seconds
}

// abandonment is what is known of abandoned executions.
type abandonment struct {
	ends // since the last judgement

	share  float64 // abandoned of those judged last: of their number or of their time, whichever is less
	before float64 // completions per second before the limit was halved
	vain   float64 // judgements for which the limit stays, after it was halved in vain
	rest   float64 // of which these remain
}

// abandoned takes note of executions, of which gone were abandoned and ended completed. Where most are abandoned at the limit, it
// halves the limit: work that goes on behind a freed slot ends first where less is begun. It reports whether completions are
// still awaited.
func (v *service) abandoned(gone, took, n, ended, dt float64) bool {
	l := &v.abandonment
	if v.phase == halved {
		switch {
		case n > 1.1*v.target+0.5: // those that ran before
			l.ends = ends{}
			return true
		case ended+gone == 0 && n < 0.5: // too little work for a result
			v.target = max(v.target, v.back)
			v.enter(watching)
		}
	}
	l.ends = ends{l.ended + ended, l.gone + gone, l.took + took, l.work + n*dt, l.time + dt}
	all, hoped := l.ended+l.gone, l.before*l.time
	if all < enoughEnds || l.time*all < 1.2*l.work ||
		v.phase == halved && hoped > 0 && (hoped < few || l.ended > 0 && hoped < enoughEnds) {
		return v.phase == halved
	}
	n, rate := l.work/l.time, l.ended/l.time
	l.share = min(l.gone/all, l.took/max(l.work, 1e-9))
	l.ends = ends{}
	if v.phase == halved {
		v.enter(watching)
		if rate > 0 && rate < fewer*l.before {
			v.target = max(v.target, v.back)
			l.vain = min(2*l.vain+1, mostRest)
			l.rest = l.vain
			return false
		}
		v.pace = wary
		v.base.forget() // it was learned while work went on unseen
	}
	if l.share <= 0.5 {
		l.vain, l.rest = 0, 0
		return false
	}
	if l.rest--; l.rest >= 0 || n < 0.7*v.target || v.target <= 1 {
		return false
	}
	l.rest, l.before = 0, rate
	v.back, v.target = v.target, max(math.Floor(n/2), 1)
	v.enter(halved)
	return true
}

// reason says which share was abandoned.
func (l *abandonment) reason() decision.Reason {
	return decision.NewReason("abandoned", "service_abandoned", l.share, decision.Tighten)
}

// SPDX-License-Identifier: Apache-2.0

// The longest wait: while an overload lasts, a task without a deadline is told so, instead of waiting until its client leaves.

package control

import "time"

const (
	enough   = 3.0  // execution times for which the limit has to stand before a wait is bounded, and which the bound leaves
	tried    = 12.0 // execution times that a trial may take
	briefest = 1.0  // seconds, the least bound
	unknown  = 3.0  // seconds, the bound while nothing has ended: work that takes long begins like work that hangs
	recalled = 10.0 // time constant in seconds, at least, of the memory of a higher limit
)

// wait follows the limit: while it still rises and work ends, who waits has good hope. A trial is a shortage of control's own making: it proves
// nothing, and bounds nobody's wait unless it is sure to end sooner.
type wait struct {
	high   float64 // the limit, or an earlier and higher one, fading
	steady float64 // seconds since it last rose above that, without trials
	trial  bool    // one is on
}

// observe takes note of the limit, in which a trial may be on, while an execution takes expected seconds.
func (w *wait) observe(limit, expected, dt float64, trial bool) {
	w.trial = trial
	switch {
	case limit > w.high:
		w.steady = 0
	case !trial:
		w.steady += dt
	}
	w.high = max(limit, w.high-(w.high-limit)*toward(dt, max(recalled, enough*expected)))
}

// most returns MaxWait of the decision; 0: nothing bounds a wait.
func (w *wait) most(expected float64) time.Duration {
	switch {
	case w.steady < enough*expected || w.trial && tried*expected > briefest:
		return 0
	case expected <= 0:
		return time.Duration(unknown * float64(time.Second))
	}
	return time.Duration(max(briefest, enough*expected) * float64(time.Second))
}

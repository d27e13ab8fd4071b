// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file limits the rate of attempts (D10): when a Rate is called, and what its results mean.

import "time"

// Rate bounds how fast attempts begin, of all domains or of one. A *rate.Limiter of golang.org/x/time becomes a Rate by
// two short methods, see examples/rates. It is asked right before an attempt that has a slot, and never blocks an
// attempt itself: it reserves nothing, so nothing has to be given back. Its methods must be safe for concurrent use,
// must not block and must not call runtime.Goexit.
type Rate interface {
	// Delay returns how long after now the next attempt may begin, if no other does before; 0 or less: now. It counts
	// nothing. It is called again after that time, or after a minute if that is less.
	Delay(now time.Time) time.Duration
	// Take counts an attempt that begins now, or returns false if none may. It is called if Delay returned 0 or less.
	Take(now time.Time) bool
}

const (
	// longestDelay bounds the time until a rate is asked again: it may say never, or be changed meanwhile.
	longestDelay = time.Minute
	// shortestDelay is the time until a rate is asked again whose Delay is 0 and whose Take is false.
	shortestDelay = time.Millisecond
)

// pace asks the rates whether an attempt in dom may begin. RateOf's is asked before Config.Rate, whose attempts are not taken
// in vain then. Neither counts an attempt unless both admit it, except when others take from RateOf's rate in between. If the
// attempt has to wait, own is above 0 for RateOf's rate, or all for Config.Rate.
func (d *Dispatcher) pace(dom *domain) (own, all time.Duration) {
	if d.cfg.RateOf == nil && d.cfg.Rate == nil {
		return 0, 0
	}
	now := time.Now()
	defer func() {
		if value := recover(); value != nil {
			d.mu.Lock()
			own, all = max(dom.errorPause(d.momentLocked(dom, now)), shortestDelay), 0
			d.mu.Unlock()
			d.observe(Event{Kind: CallbackFailed, Domain: dom.name, Err: panicked("Rate or Config.RateOf", value), Wait: own})
		}
	}()
	var rate Rate
	if d.cfg.RateOf != nil {
		rate = d.cfg.RateOf(dom.name)
	}
	if own = delay(rate, now, false); own > 0 {
		return own, 0
	}
	if all = delay(d.cfg.Rate, now, true); all > 0 {
		return 0, all
	}
	return delay(rate, now, true), 0
}

// delay returns how long a rate makes an attempt wait. With take, the rate counts an attempt that need not wait.
func delay(r Rate, now time.Time, take bool) time.Duration {
	if r == nil {
		return 0
	}
	wait := r.Delay(now)
	if wait <= 0 && take && !r.Take(now) {
		wait = max(r.Delay(now), shortestDelay)
	}
	return min(max(wait, 0), longestDelay)
}

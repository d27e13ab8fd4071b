package dispatch

// This file bounds how fast attempts begin (D10): when a Rate is called, and how its invalid results are treated.

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
	// longestDelay is when a rate that says never, or that was changed meanwhile, is asked again.
	longestDelay = time.Minute
	// shortestDelay is when one is asked again that has let an attempt go and takes none.
	shortestDelay = time.Millisecond
)

// pace asks the rates for an attempt in dom, its own before that of all, which is not asked in vain then. Nothing is counted unless both let it go, but for
// one that others take from in between. One of the two is above 0 if it has to wait: for its own rate, or for that of all.
func (d *Dispatcher) pace(dom *domain) (own, all time.Duration) {
	if d.cfg.RateOf == nil && d.cfg.Rate == nil {
		return 0, 0
	}
	defer func() {
		if value := recover(); value != nil {
			dom.errorsInRow++
			own, all = max(d.cfg.errorPause(dom.errorsInRow), shortestDelay), 0
			d.observe(Event{Kind: CallbackFailed, Domain: dom.name, Err: panicked("Rate or Config.RateOf", value), Wait: own})
		}
	}()
	now := time.Now()
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

// delay is how long a rate has an attempt wait. With take it counts the attempt if that is 0.
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

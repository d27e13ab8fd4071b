// The Caller: it decides which attempts may start.

package retry

import (
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
)

// Caller decides for all calls to one dependency. Its methods are safe for concurrent use, never block and call no foreign
// code but Config.Rand. It must come from [New]: the zero Caller rejects every call as invalid.
type Caller struct {
	cfg   Config
	epoch time.Time

	mu       sync.Mutex // guards all below; nothing but Rand is called under it
	budget   window     // first attempts, and retries and hedges
	accepted map[limiter.Priority]*window
	stats    Stats
}

// Stats is a consistent snapshot of a Caller's counters. None ever falls.
type Stats struct {
	// Calls counts calls whose first attempt started; Throttled those that were rejected instead.
	Calls, Throttled uint64
	// Retries and Hedges count attempts beyond the first.
	Retries, Hedges uint64
	// Accepted and Rejected count attempts by outcome; attempts that end as Unknown are in neither.
	Accepted, Rejected uint64
	// NoBudget, NoTime, Pushback and RetryThrottled count retries and hedges that were not made: the budget was used up; the
	// wait would have exceeded the deadline or MaxWait; the server forbade it; the throttle rejected it.
	NoBudget, NoTime, Pushback, RetryThrottled uint64
}

// Outcome classifies an attempt by what it says about the dependency.
type Outcome uint8

// The outcomes.
const (
	Unknown  Outcome = iota // says nothing: the caller canceled, the attempt was not sent, or a tenant's share is used up
	Accepted                // processed, with success or not
	Rejected                // rejected, timed out, or unreachable
)

// Call is one call with up to Config.Attempts attempts. It is not safe for concurrent use.
type Call struct {
	caller   *Caller
	priority limiter.Priority
	attempts int
}

// Begin asks for the first attempt of a call. If the dependency accepts too few calls of this priority, the error is a
// [*ThrottledError]: send nothing. Otherwise start the attempt, and report its outcome with [Call.Ended].
//
// Begin allocates nothing, except for a priority's first call (about 900 bytes, for at most 256 priorities) and the error.
func (c *Caller) Begin(p limiter.Priority) (Call, error) {
	if c == nil || c.accepted == nil {
		return Call{}, &InvalidError{"Caller", "nil or zero", "a caller made by retry.New"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.throttle(p)
	lately := w.lately(fewest)
	if probability := lately.probability(); c.throttles(probability) {
		e := &ThrottledError{p, lately.whole, lately.part, probability}
		w.add(1, 0)
		c.stats.Throttled++
		return Call{}, e
	}
	c.stats.Calls++
	c.move(&c.budget)
	c.budget.add(1, 0)
	return Call{c, p, 1}, nil
}

// Ended reports the outcome of an attempt, with the priority it was sent with. An attempt counts when it has ended, so that
// slow calls in flight do not look like rejected ones.
func (k *Call) Ended(p limiter.Priority, o Outcome) {
	c := k.caller
	if c == nil || o == Unknown {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if o == Accepted {
		c.stats.Accepted++
		c.throttle(p).add(1, 1)
		return
	}
	c.stats.Rejected++
	c.throttle(p).add(1, 0)
}

// Retry asks for another attempt, at the priority of the call, and returns how long to wait before it. The caller is
// responsible for the retry being safe. after is the wait that the server asked for, 0: none, negative: do not retry. The
// wait is after plus a random part of up to Backoff, doubled with each attempt (full jitter). deadline is the call's; the
// zero time means none.
//
// If ok is true, the retry counts against the budget, whether it is made or not. ok is false if the call has made all its
// attempts, the server forbids it, the wait is longer than MaxWait or would not end before the deadline, the throttle rejects
// it, or the budget is used up.
func (k *Call) Retry(after time.Duration, deadline time.Time) (wait time.Duration, ok bool) {
	c := k.caller
	if c == nil || k.attempts >= c.cfg.Attempts {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if after < 0 {
		c.stats.Pushback++
		return 0, false
	}
	longest := c.cfg.Backoff << (k.attempts - 1)
	wait = min(after+time.Duration(c.draw()*float64(longest)), max(after, c.cfg.MaxWait))
	if wait > c.cfg.MaxWait || !deadline.IsZero() && wait >= time.Until(deadline) {
		c.stats.NoTime++
		return 0, false
	}
	if !c.spendRetry(k.priority) {
		return 0, false
	}
	c.stats.Retries++
	k.attempts++
	return wait, true
}

// Hedge asks for another attempt beside the running one, and returns the priority to send it with: one class lower, so that
// an overloaded server sheds it before first attempts of the same class. It counts against the budget like a retry.
func (k *Call) Hedge() (limiter.Priority, bool) {
	c := k.caller
	if c == nil || k.attempts >= c.cfg.Attempts {
		return 0, false
	}
	p := lower(k.priority)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.spendRetry(p) {
		return 0, false
	}
	c.stats.Hedges++
	k.attempts++
	return p, true
}

// lower returns the next common priority below p; below Background, the lowest priority.
func lower(p limiter.Priority) limiter.Priority {
	for _, q := range []limiter.Priority{limiter.High, limiter.Normal, limiter.Background} {
		if q < p {
			return q
		}
	}
	return -128
}

// Stats returns a snapshot of the counters.
func (c *Caller) Stats() Stats {
	if c == nil {
		return Stats{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// spendRetry takes an attempt beyond the first from the budget, if throttle and budget allow it. One that the throttle rejects
// does not count as a request, because only this package wanted it.
func (c *Caller) spendRetry(p limiter.Priority) bool {
	if c.throttles(c.throttle(p).lately(fewest).probability()) {
		c.stats.RetryThrottled++
		return false
	}
	c.move(&c.budget)
	if allowed := max(float64(c.cfg.MinRetries), c.cfg.Ratio*float64(c.budget.within())); float64(c.budget.all.part+1) > allowed {
		c.stats.NoBudget++
		return false
	}
	c.budget.add(0, 1)
	return true
}

// probability returns the throttle's rejection probability, by the SRE book except for its two bounds.
func (s sums) probability() float64 {
	if s.whole < fewest {
		return 0
	}
	return min(max(0, (float64(s.whole)-accepting*float64(s.part))/float64(s.whole+1)), maxThrottle)
}

func (c *Caller) throttles(probability float64) bool {
	return probability > 0 && c.draw() < probability
}

// throttle returns the window of a priority, moved to now.
func (c *Caller) throttle(p limiter.Priority) *window {
	w := c.accepted[p]
	if w == nil {
		w = &window{}
		c.accepted[p] = w
	}
	c.move(w)
	return w
}

func (c *Caller) move(w *window) { w.at(time.Since(c.epoch)) }

// draw returns Rand's number, clamped to [0, 1].
func (c *Caller) draw() float64 {
	v := c.cfg.Rand()
	if !(v >= 0) { // NaN as well
		return 0
	}
	return min(v, 1)
}

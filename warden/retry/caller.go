// Which attempts may start.

package retry

import (
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
)

// Caller decides for all calls to one dependency. Its methods may be called by any number of goroutines, never block and call nothing
// but Config.Rand. It must come from [New]: the zero Caller refuses every call as invalid.
type Caller struct {
	cfg   Config
	epoch time.Time

	mu       sync.Mutex // guards all below; nothing but Rand is called under it
	budget   window     // first attempts, and retries and hedges
	accepted map[limiter.Priority]*window
	stats    Stats
}

// Stats are the counts of a Caller since it was made, of one instant. None ever falls.
type Stats struct {
	// Calls are those whose first attempt started, Throttled those that were refused instead.
	Calls, Throttled uint64
	// Retries and Hedges are the attempts beyond the first.
	Retries, Hedges uint64
	// Accepted and Refused are the attempts that ended so; those that end as Unknown are in neither.
	Accepted, Refused uint64
	// NoBudget, NoTime, Pushback and RetryThrottled are retries and hedges that would have been made, and why they were not: the budget was
	// used up; the wait would have outlasted the deadline or MaxWait; the server forbade it; the throttle refused.
	NoBudget, NoTime, Pushback, RetryThrottled uint64
}

// Outcome is what an attempt says about the dependency.
type Outcome uint8

// The outcomes.
const (
	Unknown  Outcome = iota // nothing: its caller went away, or it never left this process
	Accepted                // it was worked on, well or badly
	Refused                 // it was refused, or not answered in its time, or nobody was there
)

// Call is one call: up to Config.Attempts attempts. It belongs to one goroutine at a time.
type Call struct {
	caller   *Caller
	priority limiter.Priority
	attempts int
}

// Begin asks for the first attempt of a call. The error is a [*ThrottledError] if the dependency accepts too few calls of this priority: then
// nothing is to be sent. Otherwise the attempt starts now, and [Call.Ended] is to be told what came of it.
//
// Begin allocates nothing, but for a priority's first call (about 900 bytes, for at most 256 priorities) and the error.
func (c *Caller) Begin(p limiter.Priority) (Call, error) {
	if c == nil || c.accepted == nil {
		return Call{}, &InvalidError{"Caller", "zero", "one made by retry.New"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.throttle(p)
	lately := w.lately(fewest)
	if probability := lately.probability(); c.refuses(probability) {
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

// Ended tells how an attempt ended, with the priority it was sent with. An attempt counts when it has ended, so that slow calls under way do not
// look like refused ones.
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
	c.stats.Refused++
	c.throttle(p).add(1, 0)
}

// Retry asks for another attempt, which has the priority of the call, and says how long to wait before it. The caller says that the attempt is
// safe. after is what the server asked for, 0: nothing, negative: that it be left alone; the wait is that and a random part on top, up to Backoff
// doubled with each attempt (full jitter). deadline is the call's; the zero time means none.
//
// With true the retry is paid for, whether it is made or not. It is false if the call has made all its attempts, the server forbids it, the wait is
// longer than MaxWait or would not end before the deadline, the throttle refuses, or the budget is used up.
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
	if !c.affords(k.priority) {
		return 0, false
	}
	c.stats.Retries++
	k.attempts++
	return wait, true
}

// Hedge asks for another attempt beside the one that runs, and says with which priority to send it: one class lower, so that a server that is
// short of room sheds it before any first attempt of its kind. It is paid for like a retry.
func (k *Call) Hedge() (limiter.Priority, bool) {
	c := k.caller
	if c == nil || k.attempts >= c.cfg.Attempts {
		return 0, false
	}
	p := lower(k.priority)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.affords(p) {
		return 0, false
	}
	c.stats.Hedges++
	k.attempts++
	return p, true
}

// lower is the next of the common priorities below p; below Background there is only the lowest.
func lower(p limiter.Priority) limiter.Priority {
	for _, q := range []limiter.Priority{limiter.High, limiter.Normal, limiter.Background} {
		if q < p {
			return q
		}
	}
	return -128
}

// Stats reads the counts.
func (c *Caller) Stats() Stats {
	if c == nil {
		return Stats{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// affords pays for an attempt beyond the first, if throttle and budget let it start. One that the throttle refuses is not counted as a request: nobody
// asked for it but this package.
func (c *Caller) affords(p limiter.Priority) bool {
	if c.refuses(c.throttle(p).lately(fewest).probability()) {
		c.stats.RetryThrottled++
		return false
	}
	c.move(&c.budget)
	if allowed := max(float64(c.cfg.Floor), c.cfg.Ratio*float64(c.budget.within())); float64(c.budget.all.part+1) > allowed {
		c.stats.NoBudget++
		return false
	}
	c.budget.add(0, 1)
	return true
}

// probability is that of a refusal, as the SRE book has it but for its two ends.
func (s sums) probability() float64 {
	if s.whole < fewest {
		return 0
	}
	return min(max(0, (float64(s.whole)-accepting*float64(s.part))/float64(s.whole+1)), mostRefused)
}

func (c *Caller) refuses(probability float64) bool { return probability > 0 && c.draw() < probability }

// throttle is the window of a priority, up to now.
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

// draw is Rand's number, or the nearest that it may be.
func (c *Caller) draw() float64 {
	v := c.cfg.Rand()
	if !(v >= 0) { // NaN as well
		return 0
	}
	return min(v, 1)
}

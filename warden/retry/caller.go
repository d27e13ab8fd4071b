// SPDX-License-Identifier: Apache-2.0

// The Caller: it decides which attempts may start.

package retry

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// Caller decides for all calls of a client, for each dependency by itself. Its methods are safe for concurrent use, never
// block and call no function of the program but Config.Rand. It must come from [New]: the zero Caller rejects every call as
// invalid.
type Caller struct {
	cfg   Config
	epoch time.Time
	seed  maphash.Seed // of the paths' hashes

	mu        sync.Mutex // guards all below; nothing but Rand is called under it
	windows   map[key]*window
	forgotten int64 // number of the slice in which idle windows were last removed
	stats     Stats
}

// key is a dependency and a class of priorities, of which there are too few for clients to fill the table with them, or its budget:
// first attempts, and retries and hedges.
type key struct {
	dependency string
	of         decision.Priority
}

const (
	budget        = decision.Critical - 1 // a key.of that is no class
	maxWindows    = 1000
	maxDependency = 256 // bytes
)

// Target is where a call goes. The zero Target is suitable if a Caller has only one dependency, with one path.
type Target struct {
	// Dependency is the server, such as a URL's host; its first 256 bytes count. Each has its own budget and throttle. A Caller
	// tells 500 of them apart, 200 if each has calls of all four classes of priority, and once it has as many, forgets those that
	// had no call for a minute. Those beyond count together.
	Dependency string
	// Path is a part of the dependency that may fail alone, such as a URL's path or an RPC's method. Leave out what
	// differs from call to call, such as IDs. Of each dependency and class the last 32 paths of the last minute count.
	Path string
	// Priority is the call's: rejections are counted per class ([decision.Priority.Class]).
	Priority decision.Priority
}

// Stats is a consistent snapshot of a Caller's counters. None ever falls.
type Stats struct {
	// Calls counts calls whose first attempt started; Throttled those that were rejected instead.
	Calls, Throttled uint64
	// Retries and Hedges count attempts beyond the first.
	Retries, Hedges uint64
	// Accepted, Rejected and Failed count attempts by outcome; attempts that end as Unknown are in none.
	Accepted, Rejected, Failed uint64
	// NoBudget counts retries and hedges that were not made because the budget was used up; NoTime retries whose wait would have
	// exceeded the deadline or 10 s, or that the server forbade.
	NoBudget, NoTime uint64
}

// Outcome classifies an attempt by what it says about the dependency. wardenhttp.NewRetry and wardengrpc.NewRetry
// decide it from the answer: the text of wardenhttp.NewRetry lists which HTTP answers have which outcome.
type Outcome uint8

// The outcomes.
const (
	Unknown  Outcome = iota // says nothing: the caller canceled, the attempt was not sent, or a tenant's share is used up
	Accepted                // processed, with success or not
	Rejected                // rejected because of overload, or unreachable
	Failed                  // failed or timed out: overload, or the path's own failure; the answers of the other paths decide
)

// Call is one call with up to Config.Attempts attempts. It is not safe for concurrent use.
type Call struct {
	caller   *Caller
	target   Target
	attempts int
}

// Begin asks for the first attempt of a call. If the dependency accepts too few calls of this priority's class, the error is
// [ErrThrottled]: send nothing. Otherwise start the attempt, and report its outcome with [Call.Ended].
//
// Begin allocates nothing, except for the error, and for the first call of a dependency or of a class (about 1.3 kB each,
// for 1,005 at a time at most).
func (c *Caller) Begin(t Target) (Call, error) {
	if c == nil || c.windows == nil {
		return Call{}, invalidField("Caller", "nil or zero", "a caller made by retry.New")
	}
	t.Dependency = t.Dependency[:min(len(t.Dependency), maxDependency)]
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.window(t.Dependency, t.Priority.Class())
	recent := w.recent(fewest)
	if probability := recent.probability(); c.throttles(probability) {
		e := &throttledError{strings.Clone(t.Dependency), t.Priority.Class(), recent, probability}
		w.throttled()
		c.stats.Throttled++
		return Call{}, e
	}
	c.stats.Calls++
	c.window(t.Dependency, budget).add(sums{whole: 1})
	return Call{c, t, 1}, nil
}

// Ended reports the outcome of an attempt, with the priority it was sent with. An attempt counts when it has ended, so that
// slow calls in flight do not look like rejected ones. Outcomes other than those above count as Unknown.
func (k *Call) Ended(p decision.Priority, o Outcome) {
	c := k.caller
	if c == nil || o == Unknown || o > Failed {
		return
	}
	hash := maphash.String(c.seed, k.target.Path)
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.window(k.target.Dependency, p.Class())
	w.paths.answered(hash, w.last, o != Accepted)
	switch o {
	case Accepted:
		c.stats.Accepted++
		w.add(sums{whole: 1, part: 1})
	case Rejected:
		c.stats.Rejected++
		w.add(sums{whole: 1})
	default:
		c.stats.Failed++
		w.add(sums{failed: 1})
	}
}

// Retry asks for another attempt, at the priority of the call, and returns how long to wait before it. The caller is
// responsible for the retry being safe. after is the wait that the server asked for, 0: none, negative: do not retry. The
// wait is after plus a random part of up to Backoff, doubled with each attempt (full jitter). deadline is the call's; the
// zero time means none.
//
// If ok is true, the retry counts against the budget, whether it is made or not. ok is false if the call has made all its
// attempts, the server forbids it, the wait is longer than 10 s or would not end before the deadline, the throttle rejects
// it, or the budget is used up. Then wait is 0, or the one for which the deadline is too early.
func (k *Call) Retry(after time.Duration, deadline time.Time) (wait time.Duration, ok bool) {
	c := k.caller
	if c == nil || k.attempts >= c.cfg.Attempts {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	jitter := time.Duration(c.draw() * float64(c.cfg.Backoff<<(k.attempts-1)))
	wait = max(after, min(after+jitter, longestWait))
	switch {
	case after < 0 || wait > longestWait:
		c.stats.NoTime++
		return 0, false
	case !deadline.IsZero() && wait >= time.Until(deadline):
		c.stats.NoTime++
		return wait, false
	}
	if !c.spendRetry(k.target.Dependency, k.target.Priority) {
		return 0, false
	}
	c.stats.Retries++
	k.attempts++
	return wait, true
}

// Hedge asks for another attempt beside the running one, and returns the priority to send it with: one class lower, so that
// an overloaded server sheds it before first attempts of the same class. It counts against the budget like a retry.
func (k *Call) Hedge() (decision.Priority, bool) {
	c := k.caller
	if c == nil || k.attempts >= c.cfg.Attempts {
		return 0, false
	}
	p := lower(k.target.Priority)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.spendRetry(k.target.Dependency, p) {
		return 0, false
	}
	c.stats.Hedges++
	k.attempts++
	return p, true
}

// lower returns the next common priority below p; below Background, the lowest priority.
func lower(p decision.Priority) decision.Priority {
	for _, q := range []decision.Priority{decision.High, decision.Normal, decision.Background} {
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
func (c *Caller) spendRetry(dependency string, p decision.Priority) bool {
	if c.throttles(c.window(dependency, p.Class()).recent(fewest).probability()) {
		return false
	}
	b := c.window(dependency, budget)
	if allowed := max(float64(c.cfg.MinRetries), c.cfg.Ratio*float64(b.within())); float64(b.all.part+1) > allowed {
		c.stats.NoBudget++
		return false
	}
	b.add(sums{part: 1})
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

// window returns the window of a dependency's class or budget, moved to now. When there are too many, and none to forget,
// the dependencies without one share those of the dependency "".
func (c *Caller) window(dependency string, of decision.Priority) *window {
	now := time.Since(c.epoch)
	k := key{dependency, of}
	w := c.windows[k]
	if w == nil && len(c.windows) >= maxWindows {
		if c.forget(int64(now / slice)); len(c.windows) >= maxWindows {
			k.dependency = ""
			w = c.windows[k]
		}
	}
	if w == nil {
		w = &window{last: int64(now / slice)}
		k.dependency = strings.Clone(k.dependency) // it may be part of something long
		c.windows[k] = w
	}
	w.at(now)
	return w
}

// forget removes the windows in which nothing counts any more. It looks for them once a slice at most.
func (c *Caller) forget(now int64) {
	if now == c.forgotten {
		return
	}
	c.forgotten = now
	for k, w := range c.windows {
		if w.last < now-remembered {
			delete(c.windows, k)
		}
	}
}

// draw returns Rand's number, clamped to [0, 1].
func (c *Caller) draw() float64 {
	v := c.cfg.Rand()
	if !(v >= 0) { // NaN as well
		return 0
	}
	return min(v, 1)
}

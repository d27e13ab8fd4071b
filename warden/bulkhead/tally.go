// What is counted of a part, and how the numbers of its limiters become those of a snapshot.

package bulkhead

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stopbank/stopbank/warden/limiter"
)

// tally is what the limiters do not count. Nothing in it is touched by a call that succeeds at once, but for finished.
type tally struct {
	outcomes                                    [outcomes]atomic.Uint64 // but Succeeded: see CompartmentSnapshot
	reentries, breakerOpen, queueTimeouts       atomic.Uint64
	refused                                     atomic.Uint64 // for any reason but the caller's cancel
	finished                                    atomic.Uint64 // with tenants only
	abandoned, latePanics                       atomic.Uint64
	degraded, fallbacksFailed, fallbacksRefused atomic.Uint64
	abandonedNow, fallbacks                     atomic.Int64
}

func (t *tally) answered(out Outcome) {
	if out != Succeeded {
		t.outcomes[out].Add(1)
	}
}

// finished is how many functions have returned. With tenants it is counted, because there may be many limiters to ask.
func (p *part) finished() uint64 {
	if p.tenants != nil {
		return p.tally.finished.Load()
	}
	n := p.self.limiter.Stats().Executed
	return n - min(n, p.tally.breakerOpen.Load())
}

// limiterCounts is the sum of the counters of several limiters.
type limiterCounts struct {
	submitted, executed uint64
	queued, running     int
	refusedFor          [limiter.Closed + 1]uint64
}

func (n *limiterCounts) add(s limiter.Stats) {
	n.submitted += s.Submitted
	n.executed += s.Executed
	n.queued += s.Queued
	n.running += s.Running
	for r := range n.refusedFor {
		n.refusedFor[r] += s.RejectedFor(limiter.Reason(r))
	}
}

// counts is the sum over all limiters of the part.
func (p *part) counts() (n limiterCounts) {
	if ts := p.tenants; ts != nil {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		n = ts.past
		for _, c := range ts.byKey {
			n.add(c.limiter.Stats())
		}
	}
	n.add(p.self.limiter.Stats())
	return n
}

// reasonOf names the reason for which Do has refused a call.
func reasonOf(err error) string {
	var timeout *TimeoutError
	var r *limiter.Rejection
	switch {
	case errors.As(err, &timeout):
		return ReasonTimeoutQueued
	case errors.As(err, &r):
		return r.Reason.String()
	case errors.Is(err, ErrBreakerOpen):
		return ReasonBreakerOpen
	}
	return ReasonReentry
}

// The reasons for a refusal that the limiter does not have, as they are in [Event], in [CompartmentSnapshot] and in logs.
const (
	ReasonTimeoutQueued = "timeout_queued"
	ReasonBreakerOpen   = "breaker_open"
	ReasonReentry       = "reentry"
)

// recent keeps the last explanations of what tenants were refused: their limiters may be forgotten sooner.
type recent struct {
	mu   sync.Mutex // guards all below
	ring [128]limiter.Explanation
	next int
}

func (r *recent) add(e limiter.Explanation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring[r.next%len(r.ring)] = e
	r.next++
}

func (r *recent) all() []limiter.Explanation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ring[:min(r.next, len(r.ring))])
}

// Recent are the explanations of the last calls that were refused or had to wait, of all compartments, the oldest first;
// of tenants, those that were refused. Their Limiter is the name of the compartment, their Task.Name the key of the
// tenant, if there is one. It allocates.
func (s *Set) Recent() []limiter.Explanation {
	var all []limiter.Explanation
	for _, p := range s.parts {
		if p.tenants != nil {
			all = append(all, p.tenants.recent.all()...)
		} else {
			all = append(all, p.self.limiter.Recent()...)
		}
	}
	slices.SortStableFunc(all, func(a, b limiter.Explanation) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	return all
}

// Stats are the counters of the limiter of this compartment, without its tenants, or of this one tenant; zero of nil.
func (c *Compartment) Stats() limiter.Stats {
	if !c.made() {
		return limiter.Stats{}
	}
	return c.limiter.Stats()
}
